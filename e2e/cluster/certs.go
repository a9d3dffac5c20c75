package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certify makes the cluster's certificates and the administrator's kubeconfig in the node's folder, unless they exist.
// There is one authority, one certificate for the API server, one for the administrator, which every part of the
// control plane uses, and one key that signs service account tokens.
func certify(p Places) error {
	if _, err := os.Stat(p.Kubeconfig()); err == nil {
		return nil
	}
	if err := os.MkdirAll(p.pki(""), 0o700); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	ca, err := newAuthority()
	if err != nil {
		return fmt.Errorf("make the cluster's authority: %w", err)
	}
	server, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(NodeIP), net.ParseIP(firstIP)},
	})
	if err != nil {
		return fmt.Errorf("make the API server's certificate: %w", err)
	}
	admin, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("make the administrator's certificate: %w", err)
	}
	tokens, err := newPair()
	if err != nil {
		return fmt.Errorf("make the key for service accounts: %w", err)
	}
	for name, body := range map[string][]byte{
		"ca.crt": ca.cert, "apiserver.crt": server.cert, "apiserver.key": server.key,
		"admin.crt": admin.cert, "admin.key": admin.key, "tokens.key": tokens.key, "tokens.pub": tokens.cert,
	} {
		if err := os.WriteFile(p.pki(name), body, 0o600); err != nil {
			return fmt.Errorf("make certificates: %w", err)
		}
	}
	// The last file, and written as a whole: where it is, the others are.
	tmp := filepath.Join(p.Node, "tmp-kubeconfig")
	if err := os.WriteFile(tmp, kubeconfig(ca, admin), 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return os.Rename(tmp, p.Kubeconfig())
}

// pair is a private key and its certificate or public key. Both are PEM.
type pair struct {
	key, cert []byte
	private   *ecdsa.PrivateKey
}

type authority struct {
	pair
	template *x509.Certificate
}

func newPair() (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return pair{}, err
	}
	return pair{key: block("PRIVATE KEY", private), cert: block("PUBLIC KEY", public), private: key}, nil
}

func newAuthority() (authority, error) {
	p, err := newPair()
	if err != nil {
		return authority{}, err
	}
	a := authority{pair: p, template: &x509.Certificate{
		Subject: pkix.Name{CommonName: "rouse-cluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	a.cert, err = a.sign(a.template, p.private.Public())
	return a, err
}

// issue makes a key and a certificate for it.
func (a authority) issue(template *x509.Certificate) (pair, error) {
	p, err := newPair()
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	p.cert, err = a.sign(template, p.private.Public())
	return p, err
}

func (a authority) sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(10, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, a.template, public, a.private)
	return block("CERTIFICATE", der), err
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func kubeconfig(ca authority, admin pair) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: rouse
clusters: [{name: rouse, cluster: {server: "https://%s:6443", certificate-authority-data: %s}}]
users: [{name: admin, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: rouse, context: {cluster: rouse, user: admin}}]
`, NodeIP, b64(ca.cert), b64(admin.cert), b64(admin.key))
}
