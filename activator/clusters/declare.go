package clusters

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/rouse-dev/rouse/api"
)

// Declaration is what the front door's operator says of one cluster.
type Declaration struct {
	// Name is what its agents call themselves.
	Name string `json:"name"`
	// TokenHashes are the SHA-256 sums, in hexadecimal, of tokens that its agents may show: two, while one is replaced.
	TokenHashes []string `json:"tokenHashes,omitempty"`
	// Certificate is a name that the certificate of its agents must have, signed by the front door's authority.
	Certificate string `json:"certificate,omitempty"`
	// Functions are the functions that it may serve, as patterns: "default/chat", "default/*". None: nothing.
	Functions []string `json:"functions"`
	// Names are what clients may call its functions, their aliases and adapters, as patterns, beside NAMESPACE/NAME and the names of the
	// functions that it may serve in the namespace default.
	Names []string `json:"names,omitempty"`
	// Front says that it is another front door, whose agents have what it offers: nothing of it is offered to further ones.
	Front bool `json:"front,omitempty"`
	// Tenants are those whose requests it may see; none named: everybody's.
	Tenants []string `json:"tenants,omitempty"`
	// Labels say where it is, and count before what its agents say.
	Labels map[string]string `json:"labels,omitempty"`
	// Cost is the price of an awake instance there for an hour, in the same unit for all clusters.
	Cost float64 `json:"cost,omitempty"`
}

// Validate reports the first field that is wrong, and what it should be.
func (d Declaration) Validate() error {
	switch {
	case d.Name == "":
		return errors.New("a cluster has no name")
	case len(d.TokenHashes) == 0 && d.Certificate == "":
		return fmt.Errorf("cluster %s: anybody could say to be it: give tokenHashes (rouse clusters token) or a certificate's name", d.Name)
	case slices.Contains(d.Tenants, ""):
		return fmt.Errorf("cluster %s: one of its tenants has no name", d.Name)
	case d.Cost < 0:
		return fmt.Errorf("cluster %s: a cost of %v: want 0 or more", d.Name, d.Cost)
	}
	for _, h := range d.TokenHashes {
		if b, err := hex.DecodeString(h); err != nil || len(b) != sha256.Size {
			return fmt.Errorf("cluster %s: %q is no SHA-256 sum: want 64 hexadecimal digits", d.Name, h)
		}
	}
	for _, p := range slices.Concat(d.Functions, d.Names) {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("cluster %s: %q is no pattern: want a name of a model, or NAMESPACE/NAME of a function, where * is any part of a name", d.Name, p)
		}
	}
	return nil
}

// allows says whether agents of the cluster may serve a function.
func (d Declaration) allows(name api.FunctionName) bool { return matches(d.Functions, string(name)) }

// matches says whether a name has the form of one of the patterns.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

// HashToken is what is kept of a token. Tokens are long and random, so a plain sum will do.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// proves says whether a token or a verified certificate is the declared one.
func (d Declaration) proves(token string, certificate *x509.Certificate) bool {
	if d.Certificate != "" && certificate != nil && (certificate.Subject.CommonName == d.Certificate || slices.Contains(certificate.DNSNames, d.Certificate)) {
		return true
	}
	if token == "" {
		return false
	}
	sum, ok := HashToken(token), 0
	for _, h := range d.TokenHashes {
		ok |= subtle.ConstantTimeCompare([]byte(sum), []byte(h))
	}
	return ok == 1
}
