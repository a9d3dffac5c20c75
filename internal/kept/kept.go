// Package kept writes values to files that a later process reads, as JSON with a version and a checksum. What was cut or changed, or is of another
// version, is an error when it is read, and no other value.
//
// It refuses to judge who wrote a file: whoever can write it can make a checksum.
//
// Its functions are safe for many goroutines.
package kept

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// file is what is written.
type file struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Value    json.RawMessage `json:"value"`
}

// Text is v with a version.
func Text(version int, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{version, checksum(raw), raw})
}

// Read reads into v, a pointer, what [Text] made, also where somebody has indented it. An error says what is wrong with it; v may then have a part of it.
func Read(text []byte, version int, v any) error {
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
