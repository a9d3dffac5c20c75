package localhttp

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

type answer string

// RoundTrip implements [http.RoundTripper].
func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

func TestLimit(t *testing.T) {
	for text, want := range map[string]string{"": "", "abc": "abc", "abcd": "abcd", "abcde": "abcd", "abcdefgh": "abcd"} {
		resp, err := Limit{From: answer(text), Bytes: 4}.RoundTrip(&http.Request{URL: &url.URL{Host: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if string(got) != want || (err != nil) != (text != want) {
			t.Errorf("of %q: %q, %v", text, got, err)
		}
		if _, again := resp.Body.Read(make([]byte, 8)); err != nil && again != err {
			t.Errorf("of %q: then %v", text, again)
		}
	}
}
