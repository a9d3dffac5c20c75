package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func anyServer(port string) error {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://127.0.0.1:"+port+"/check", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close() // the header says all
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: ":" + port, Handler: http.HandlerFunc(serve), Protocols: &protocols}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	go func() {
		<-end
		fmt.Println("anyserver: ends as it was told to")
		os.Exit(0)
	}()
	return server.ListenAndServe()
}

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		echo(w)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.Header().Set("Trailer", "X-End")
	fmt.Fprintf(w, "%s %s %s over %s, user %d, pid %d, args %q, cookie %q: %s\n", os.Getenv("HOSTNAME"), r.Method, r.URL.Path, r.Proto, os.Getuid(), os.Getpid(), os.Args[1:], r.Header.Get("Cookie"), body)
	w.Header().Set("X-End", "whole")
}

func echo(w http.ResponseWriter) {
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, both)
}
