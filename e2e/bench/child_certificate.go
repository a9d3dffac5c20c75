package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
)

// SelfSigned returns a certificate for 127.0.0.1, its own authority, and its key.
func SelfSigned() (certificate, private []byte, err error) {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	own := s.TLS.Certificates[0]
	raw, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), err
}
