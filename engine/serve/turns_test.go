package serve_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a client that does not read until told to.
type slow struct {
	reader
	begun atomic.Bool
	read  chan struct{} // closed by the test
}

func (s *slow) Write(data []byte) (int, error) {
	s.begun.Store(true)
	<-s.read
	return s.reader.Write(data)
}

// TestOneLongTextOfAClient checks that many long texts of one client are encoded one after the other, and delay no
// other client. A client that does not read its answers delays itself for at most some seconds.
func TestOneLongTextOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := face(t)
		post := func(ctx context.Context, tenant string, size int) *slow {
			w := &slow{reader: reader{header: http.Header{}, status: http.StatusOK}, read: make(chan struct{})}
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/tokenize", strings.NewReader(`{"prompt":"`+strings.Repeat("a", size)+`"}`))
			r.Header.Set("X-Rouse-Tenant", tenant)
			go s.ServeHTTP(w, r)
			synctest.Wait()
			return w
		}
		const long = 1<<20 + 1
		leaves, leave := context.WithCancel(t.Context())
		first, left, second, third := post(t.Context(), "many", long), post(leaves, "many", long), post(t.Context(), "many", long), post(t.Context(), "many", long)
		other, small := post(t.Context(), "another", long), post(t.Context(), "many", 1000)
		leave()
		synctest.Wait()
		for _, c := range []struct {
			who  string
			w    *slow
			want bool
		}{{"first", first, true}, {"one who left", left, false}, {"second", second, false}, {"third", third, false}, {"another client's", other, true}, {"short", small, true}} {
			if c.w.begun.Load() != c.want {
				t.Errorf("the %s text is answered: %v, want %v", c.who, c.w.begun.Load(), c.want)
			}
		}
		close(first.read)
		synctest.Wait()
		if !second.begun.Load() || third.begun.Load() {
			t.Errorf("after the first answer the second is there: %v, and the third: %v", second.begun.Load(), third.begun.Load())
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if !third.begun.Load() {
			t.Error("the third waits for a client who does not read")
		}
		for _, w := range []*slow{second, third, other, small} {
			close(w.read)
		}
		synctest.Wait()
		if first.size < long || third.size < long || left.begun.Load() {
			t.Errorf("answers of %d and %d bytes, and for the one who left: %v", first.size, third.size, left.begun.Load())
		}
	})
}
