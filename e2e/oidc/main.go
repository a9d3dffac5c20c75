// Command oidc is an OpenID provider for tests: the example of github.com/zitadel/oidc with one client, "rouse", and
// its users test-user@HOST and test-user2, both with the password "verysecure" and verified addresses at zitadel.ch.
// Its tokens do not have what it says of them: it wants to be asked. It is a module of its own, so that nothing else
// depends on that library.
//
//	oidc --issuer http://localhost:9998/ --redirect URL [--secret SECRET] [--cert FILE --key FILE]
package main

import (
	"flag"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(log); err != nil {
		log.Error("the provider ends", "error", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger) error {
	issuer := flag.String("issuer", "http://localhost:9998/", "its `URL`, whose port it listens at")
	redirect := flag.String("redirect", "", "the client's redirect `URI`")
	secret := flag.String("secret", "", "the client's; empty: it has none")
	cert, key := flag.String("cert", "", "certificate `file`; empty: no TLS"), flag.String("key", "", "`file` of its key")
	flag.Parse()
	u, err := url.Parse(*issuer)
	if err != nil {
		return err
	}
	if *secret == "" {
		storage.RegisterClients(storage.NativeClient("rouse", *redirect))
	} else {
		storage.RegisterClients(storage.WebClient("rouse", *secret, *redirect))
	}
	s := &http.Server{Addr: ":" + u.Port(), Handler: exampleop.SetupServer(*issuer, storage.NewStorage(storage.NewUserStore(*issuer)), log, false), ReadHeaderTimeout: 10 * time.Second}
	log.Info("an OpenID provider for tests", "issuer", *issuer)
	if *cert != "" {
		return s.ListenAndServeTLS(*cert, *key)
	}
	return s.ListenAndServe()
}
