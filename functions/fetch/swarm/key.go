package swarm

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Key is what a file's nodes know it by, and seal it with. It is a secret.
type Key [32]byte

// Right is what of a file's key does not depend on the group: it may be kept beside the file, where
// only the cache's user can read it, so that a later process can serve the file. It does not tell the credential.
type Right [32]byte

// NewRight returns the right to a file by its SHA-256 in hex and the credential that its source asks for; "" where that
// asks for none.
func NewRight(digest, credential string) Right {
	return Right(mac([]byte(credential), "rouse file right "+digest))
}

// NewKey returns the key of a file in a group of nodes that share a secret.
func NewKey(group []byte, r Right) Key {
	return Key(mac(group, "rouse file key "+string(r[:])))
}

// id names the file in paths. Who sees it can't make the key of it.
func (k Key) id() string {
	sum := mac(k[:], "id")
	return hex.EncodeToString(sum[:16])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// errSeal says that an answer was not sealed with the file's key, or for another question.
var errSeal = errors.New("its answer is not sealed as it should be")

func (k Key) aead() cipher.AEAD {
	block, err := aes.NewCipher(mac(k[:], "seal"))
	if err != nil {
		panic(err) // the key's size is right
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // the block's size is right
	}
	return gcm
}

// seal seals an answer to a question.
func (k Key) seal(question string, answer []byte) []byte {
	gcm := k.aead()
	return gcm.Seal(make([]byte, 0, len(answer)+gcm.Overhead()), nil, answer, []byte(question))
}

// unseal opens what seal made, in place.
func (k Key) unseal(question string, sealed []byte) ([]byte, error) {
	answer, err := k.aead().Open(sealed[:0], nil, sealed, []byte(question))
	if err != nil {
		return nil, errSeal
	}
	return answer, nil
}

// randomID names a process or a log.
func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Sum is the SHA-256 of a chunk.
type Sum [32]byte

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(s[:], text[:min(len(text), 64)]); err != nil || n != 32 || len(text) != 64 {
		return fmt.Errorf("a sum has %d characters, want 64 of hex", len(text))
	}
	return nil
}
