package peers

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// key is a file's secret in a group, which seals the answers about it.
type key [32]byte

// Right is a file's key without the group, by which a later process can serve it. Only the cache's user may
// read it. The credential can't be computed from it.
type Right [32]byte

// NewRight takes a SHA-256 in hex, and the source's credential, or "".
func NewRight(digest, credential string) Right {
	return Right(mac([]byte(credential), "rouse file right "+digest))
}

func newKey(group []byte, r Right) key {
	return key(mac(group, "rouse file key "+string(r[:])))
}

// id names the file in paths. The key can't be computed from it.
func (k key) id() string {
	sum := mac(k[:], "id")
	return hex.EncodeToString(sum[:16])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// errSeal: another key or question, or the answer was changed.
var errSeal = errors.New("the answer's seal is broken")

const overhead = 12 + 16 // a seal's nonce and tag, in bytes

func (k key) aead() cipher.AEAD {
	block, _ := aes.NewCipher(mac(k[:], "seal")) // no error: the sizes are right
	gcm, _ := cipher.NewGCMWithRandomNonce(block)
	return gcm
}

// seal binds an answer to its question.
func (k key) seal(question string, answer []byte) []byte {
	return k.aead().Seal(make([]byte, 0, len(answer)+overhead), nil, answer, []byte(question))
}

// unseal decrypts in place.
func (k key) unseal(question string, sealed []byte) ([]byte, error) {
	answer, err := k.aead().Open(sealed[:0], nil, sealed, []byte(question))
	if err != nil {
		return nil, errSeal
	}
	return answer, nil
}
