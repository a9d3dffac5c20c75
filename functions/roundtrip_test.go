package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rouse-dev/rouse/internal/localhttp"
)

// TestRoundTripIsHTTP compares handlers' answers here with those over a connection.
func TestRoundTripIsHTTP(t *testing.T) {
	large := strings.Repeat("0123456789", 2000)
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	handlers := map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"a status":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"two statuses": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot); w.WriteHeader(200) },
		"an interim": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			_, _ = w.Write([]byte("a"))
		},
		"no content": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			_, _ = w.Write([]byte("a"))
		},
		"small": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a")); _, _ = w.Write([]byte("b")) },
		"small, behind": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("a"))
			w.Header().Set("X-Late", "1")
		},
		"large": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, large) },
		"large in parts": func(w http.ResponseWriter, _ *http.Request) {
			for part := range strings.SplitSeq(large, "5") {
				_, _ = io.WriteString(w, part)
			}
		},
		"flushed at once": func(w http.ResponseWriter, _ *http.Request) { flush(w); _, _ = w.Write([]byte("a")) },
		"events": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 100 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				flush(w)
			}
		},
		"a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = w.Write([]byte("abc"))
		},
		"less than its length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = w.Write([]byte("abc"))
		},
		"more than its length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = w.Write([]byte("abc"))
			if _, err := w.Write([]byte("d")); !errors.Is(err, http.ErrContentLength) {
				panic(err)
			}
		},
		"trailers": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("a"))
			flush(w)
			w.Header().Set(http.TrailerPrefix+"X-End", "whole")
		},
		"abort before anything": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"abort behind a part": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("a"))
			flush(w)
			panic(http.ErrAbortHandler)
		},
		"panic": func(http.ResponseWriter, *http.Request) { panic("a fault") },
		"the request": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Header.Del("X-Given")
			fmt.Fprintln(w, r.Method, r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.Host, r.RequestURI, r.Host, r.ContentLength, string(body), r.Header["User-Agent"], r.Proto)
		},
	}
	quiet := slog.New(slog.DiscardHandler)
	for name, h := range handlers {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
			t.Run(name+" "+method, func(t *testing.T) {
				server := httptest.NewUnstartedServer(h)
				server.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelDebug)
				server.Start()
				defer server.Close()
				ask := func(by http.RoundTripper) string {
					var body io.Reader
					if method == http.MethodPost {
						body = strings.NewReader("a body")
					}
					r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/a%2Fb/c?d=e", body)
					if err != nil {
						t.Fatal(err)
					}
					r.Host, r.Header["User-Agent"], r.Header["X-Given"] = "a.host", []string{""}, []string{"1"}
					resp, err := by.RoundTrip(r)
					if r.Header["X-Given"] == nil {
						t.Error("the header of the caller was changed")
					}
					if err != nil {
						return "no answer"
					}
					defer resp.Body.Close()
					read, err := io.ReadAll(resp.Body)
					resp.Header.Del("Date")
					resp.Header.Del("Connection")
					if resp.Header.Get("Content-Type") == "text/plain; charset=utf-8" {
						resp.Header.Del("Content-Type") // guessed
					}
					if resp.Header.Get("Content-Length") == strconv.Itoa(len(read)) {
						resp.Header.Del("Content-Length") // counted
					}
					length := resp.ContentLength
					if method == http.MethodHead { // net/http counts what is not sent
						resp.Header.Del("Content-Length")
						length, err = 0, nil
					}
					return fmt.Sprint(resp.StatusCode, resp.Header, length, err != nil, string(read), resp.Trailer)
				}
				want := ask(localhttp.New(1, 1))
				if got := ask(roundTripper{h, quiet}); got != want {
					t.Errorf("(-over a connection +here):\n%s", cmp.Diff(want, got))
				}
			})
		}
	}
}

type roundTripper struct {
	h   http.Handler
	log *slog.Logger
}

func (r roundTripper) RoundTrip(in *http.Request) (*http.Response, error) {
	return roundTrip(r.h, in, r.log)
}

// TestRoundTripIsLeft expects a handler to end when its reader has gone, and the reader to learn why.
func TestRoundTripIsLeft(t *testing.T) {
	var ended sync.WaitGroup
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer ended.Done()
		for {
			if _, err := w.Write([]byte("a")); err != nil {
				break
			}
			_ = http.NewResponseController(w).Flush()
			if r.URL.Path == "/wait" {
				<-r.Context().Done()
			}
		}
		if r.Context().Err() == nil {
			t.Error("the context of the request goes on")
		}
	})
	for name, leave := range map[string]func(cancel context.CancelCauseFunc, resp *http.Response){
		"closed": func(_ context.CancelCauseFunc, resp *http.Response) { resp.Body.Close() },
		"closed in mid-read": func(_ context.CancelCauseFunc, resp *http.Response) {
			go resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
		},
		"its context has ended": func(cancel context.CancelCauseFunc, resp *http.Response) {
			cancel(errors.New("why"))
			resp.Body.Close()
		},
		"its context ends later": func(cancel context.CancelCauseFunc, resp *http.Response) {
			go cancel(errors.New("why"))
			_, _ = io.Copy(io.Discard, resp.Body)
		},
	} {
		for _, path := range []string{"/", "/wait"} {
			t.Run(name+" "+path, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://x"+path, nil)
				ended.Add(1)
				resp, err := roundTrip(h, r, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				if name == "its context ends later" && path == "/" {
					resp.Body.Close() // it writes forever
				} else {
					leave(cancel, resp)
				}
				_ = resp.Body.Close()
				ended.Wait()
				if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
					t.Error("a closed body can be read")
				}
			})
		}
	}
}

// BenchmarkRoundTrip has a handler that calls as deep as the one of requests: growing the stack there takes longer than all else.
func BenchmarkRoundTrip(b *testing.B) {
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{deep(20, 1)}) })
	in := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	for b.Loop() {
		resp, err := roundTrip(h, in, slog.New(slog.DiscardHandler))
		if err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}

//go:noinline
func deep(calls int, v byte) byte {
	var frame [200]byte
	frame[calls] = v
	if calls == 0 {
		return v
	}
	return deep(calls-1, v) + frame[calls]
}
