package door

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rouse-dev/rouse/activator/federation/protocol"
	"github.com/rouse-dev/rouse/api"
)

// Declaration is the front door operator's configuration of one cluster.
type Declaration struct {
	Name string `json:"name"`
	// TokenHashes are the hexadecimal SHA-256 sums of valid tokens.
	TokenHashes []string `json:"tokenHashes,omitempty"`
	// Certificate is the name in a certificate that the front door's authority has signed.
	Certificate string `json:"certificate,omitempty"`
	// Functions are patterns, such as "default/*". Empty: none.
	Functions []string `json:"functions"`
	// Names are patterns of further names. NAMESPACE/NAME, and the names of its functions in the namespace default, are always
	// allowed.
	Names []string `json:"names,omitempty"`
	// Front means that it is another front door: its functions are not offered to further ones.
	Front bool `json:"front,omitempty"`
	// Tenants may be empty: all.
	Tenants []string          `json:"tenants,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Cost is the hourly price of an awake instance, in the same unit for all clusters.
	Cost float64 `json:"cost,omitempty"`
}

// Validate returns an error for the first invalid field.
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

func (d Declaration) allows(name api.FunctionName) bool {
	return protocol.Matches(d.Functions, string(name))
}

// HashToken returns the hash of a token, which is long and random: a plain sum is enough.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (d Declaration) proves(token string, certificate *x509.Certificate) bool {
	if d.Certificate != "" && certificate != nil && (certificate.Subject.CommonName == d.Certificate || slices.Contains(certificate.DNSNames, d.Certificate)) {
		return true
	}
	if token == "" {
		return false
	}
	sum, ok := HashToken(token), 0
	for _, h := range d.TokenHashes {
		ok |= subtle.ConstantTimeCompare([]byte(sum), []byte(strings.ToLower(h)))
	}
	return ok == 1
}
