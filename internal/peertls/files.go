package peertls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// Files reads a certificate and its key from two PEM files at each handshake. While they can't be read, it uses the last
// pair.
type Files struct {
	Cert, Key string
	Log       *slog.Logger

	last atomic.Pointer[tls.Certificate]
	told atomic.Value // a string, the last logged error; everybody can cause handshakes
	ends atomic.Value // the certificate and the day of the last warning
}

// Get implements [tls.Config.GetCertificate]; the hello may be nil. It fails only if it has never read a certificate.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err == nil {
		f.last.Store(&pair)
		f.told.Store("")
		f.warnOfEnd(pair.Leaf)
		return &pair, nil
	}
	err = fmt.Errorf("read the certificate %s and its key %s: %w", f.Cert, f.Key, err)
	last := f.last.Load()
	if last == nil {
		return nil, err
	}
	if f.told.Swap(err.Error()) != err.Error() {
		f.Log.Warn("certificate not reloaded: the last one stays", "error", err)
	}
	return last, nil
}

const warnBefore = 14 * 24 * time.Hour

// warnOfEnd warns once a day, and for each certificate that is read.
func (f *Files) warnOfEnd(c *x509.Certificate) {
	now := time.Now()
	day := Fingerprint(c.Raw) + now.Format(time.DateOnly)
	switch left := c.NotAfter.Sub(now); {
	case left > warnBefore, f.ends.Swap(day) == day:
	case left <= 0:
		f.Log.Error("certificate expired: clients refuse it until it is renewed", "file", f.Cert, "ended", c.NotAfter)
	default:
		f.Log.Warn("certificate expires soon: renew it", "file", f.Cert, "ends", c.NotAfter)
	}
}

// Fingerprint returns the SHA-256 fingerprint of a certificate in DER, as openssl x509 -fingerprint -sha256 prints it.
func Fingerprint(der []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(der)), " ", ":")
}

// validity is the most that Apple's systems accept.
const validity = 825 * 24 * time.Hour

// SelfSigned returns a new certificate of a server with these DNS names and IP addresses, and its key, in PEM.
func SelfSigned(names ...string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	c := x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "rouse, self-signed"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity), BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, &c, &private.PublicKey, private)
	if err != nil {
		return nil, nil, fmt.Errorf("make a certificate: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}
