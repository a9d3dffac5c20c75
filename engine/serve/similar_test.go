package serve_test

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-dev/rouse/engine/serve"
)

// vectorsOf asks for vectors of texts.
func (c *client) vectorsOf(texts ...string) [][]float64 {
	c.t.Helper()
	in, _ := json.Marshal(map[string]any{"input": texts})
	_, raw := c.do("POST", "/v1/embeddings", string(in))
	var v struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal([]byte(raw), &v); err != nil || len(v.Data) != len(texts) {
		c.t.Fatalf("%s: %v", raw, err)
	}
	var all [][]float64
	for _, d := range v.Data {
		all = append(all, d.Embedding)
	}
	return all
}

func cosineOf(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func TestScore(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	v := c.vectorsOf("red boat", "red boat", "a long blue line", "x")
	for _, tt := range []struct {
		path, body string
		pairs      [][2]int
	}{
		{"/v1/score", `{"text_1":"red boat","text_2":["red boat","a long blue line","x"]}`, [][2]int{{0, 1}, {0, 2}, {0, 3}}},
		{"/score", `{"text_1":["red boat","x"],"text_2":["x","a long blue line"],"model":"parrot"}`, [][2]int{{0, 3}, {3, 2}}},
		{"/v1/score", `{"text_1":["x"],"text_2":"x"}`, [][2]int{{3, 3}}},
	} {
		resp, raw := c.do("POST", tt.path, tt.body)
		var got struct {
			Object, Model string
			Data          []struct {
				Index  int
				Object string
				Score  float64
			}
			Usage struct {
				Total int `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(raw), &got); err != nil || resp.StatusCode != http.StatusOK || len(got.Data) != len(tt.pairs) || got.Object != "list" || got.Model != "parrot" || got.Usage.Total == 0 {
			t.Errorf("%s: %d %s, %v", tt.body, resp.StatusCode, raw, err)
			continue
		}
		for i, p := range tt.pairs {
			if want := cosineOf(v[p[0]], v[p[1]]); got.Data[i].Index != i || math.Abs(got.Data[i].Score-want) > 1e-5 {
				t.Errorf("%s: the score %d is %v, want %v", tt.body, i, got.Data[i].Score, want)
			}
		}
	}
}

func TestRerank(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank"} {
		for top, want := range map[string]int{``: 3, `,"top_n":0`: 3, `,"top_n":2`: 2, `,"top_n":9`: 3} {
			resp, raw := c.do("POST", path, `{"query":"red boat","documents":["a long blue line",{"text":"red boat"},"x"]`+top+`}`)
			var got struct {
				Results []struct {
					Index    int
					Document struct{ Text string }
					Score    float64 `json:"relevance_score"`
				}
			}
			if err := json.Unmarshal([]byte(raw), &got); err != nil || resp.StatusCode != http.StatusOK || len(got.Results) != want {
				t.Fatalf("%s %s: %d %s, %v", path, top, resp.StatusCode, raw, err)
			}
			if first := got.Results[0]; first.Index != 1 || first.Document.Text != "red boat" || math.Abs(first.Score-1) > 1e-5 {
				t.Errorf("%s: the likest is %+v", path, first)
			}
			for i := 1; i < want; i++ {
				if got.Results[i].Score > got.Results[i-1].Score {
					t.Errorf("%s: the order is wrong: %s", path, raw)
				}
			}
		}
	}
}

func TestSimilarRefused(t *testing.T) {
	c := start(t, serve.Config{}, 0)
	for _, tt := range []struct{ path, body, param string }{
		{"/v1/score", `{"text_2":"x"}`, "text_1"}, {"/v1/score", `{"text_1":"x","text_2":[]}`, "text_2"}, {"/v1/score", `{"text_1":["x","y"],"text_2":["x"]}`, "text_1"},
		{"/v1/score", `{"text_1":"x","text_2":[7]}`, "text_2"}, {"/v1/score", `{"text_1":"x","text_2":"x","pooling":"max"}`, "pooling"},
		{"/v1/score", `{"text_1":"x","text_2":"` + strings.Repeat("x ", 400) + `"}`, "text_2"},
		{"/v1/rerank", `{"documents":["x"]}`, "query"}, {"/v1/rerank", `{"query":"x"}`, "documents"}, {"/v1/rerank", `{"query":"x","documents":[{"name":"x"}]}`, "documents"},
		{"/v1/rerank", `{"query":"x","documents":["x"],"top_n":-1}`, "top_n"}, {"/v1/rerank", `{"query":"x","documents":[""]}`, "documents"},
	} {
		if resp, raw := c.do("POST", tt.path, tt.body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(raw, `"param":"`+tt.param) {
			t.Errorf("%s %.100s: %d %s", tt.path, tt.body, resp.StatusCode, raw)
		}
	}
}
