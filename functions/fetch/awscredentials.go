package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/rouse-dev/rouse/internal/s3"
)

// noProfile is err, as one that another try does not change where it says that a profile is not there.
func noProfile(err error) error {
	if missing := (*s3.NoProfileError)(nil); errors.As(err, &missing) {
		return lasting{err}
	}
	return err
}

// digestOf names a text by its SHA-256.
func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}
