package inbound_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rouse-dev/rouse/internal/inbound"
)

// ends is a listener with in-memory connections.
type ends struct {
	conns chan net.Conn // sent to by dial, received from by Accept; unbuffered: a dial is an accept
	done  chan struct{}
}

func (p ends) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p ends) Close() error   { close(p.done); return nil }
func (p ends) Addr() net.Addr { return &net.UnixAddr{} }

func (p ends) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// TestAnUnusedConnectionDelaysNothing checks that Shutdown waits for a running request, but not for a connection that
// never carried one.
func TestAnUnusedConnectionDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := ends{make(chan net.Conn), make(chan struct{})}
		server := inbound.NewServer(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, "done")
		})})
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		unused, err := listener.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan string, 1)
		transport := &http.Transport{DialContext: listener.dial, DisableKeepAlives: true}
		go func() {
			resp, err := (&http.Client{Transport: transport}).Get("http://server/")
			if err != nil {
				answered <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			answered <- string(body)
		}()
		synctest.Wait()
		start := time.Now()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the end took %s, want little more than the second of the request", took)
		}
		if got := <-answered; got != "done" {
			t.Errorf("the request under way got %q, want its answer", got)
		}
		if _, err := unused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the unused connection reads %v, want its end", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
