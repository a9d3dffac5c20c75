// [Encode] encodes values for files that a later process reads: JSON with a version and a checksum. Truncated,
// modified or differently versioned data is an error, never another value.
//
// It does not authenticate a file: anyone who can write it can compute the checksum.
//
// Its functions are safe for concurrent use.
package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

type file struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Value    json.RawMessage `json:"value"`
}

// Encode encodes v with a version.
func Encode(version int, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{version, checksum(raw), raw})
}

// Decode decodes the output of [Encode], possibly reindented, into v, a pointer. After an error, v may be partly set.
func Decode(text []byte, version int, v any) error {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	if f.Version != version {
		return fmt.Errorf("it has the version %d, and this program reads %d", f.Version, version)
	}
	var raw bytes.Buffer
	if err := json.Compact(&raw, f.Value); err != nil || f.Checksum != checksum(raw.Bytes()) {
		return errors.New("it is damaged: its checksum is another one")
	}
	return json.Unmarshal(raw.Bytes(), v)
}

func checksum(raw []byte) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(raw)) }
