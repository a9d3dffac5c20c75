// Package disk has what the standard library lacks for files: locks, atomic writes, and reading what people write.
package disk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Ways to lock. The kernel releases a lock with its process.
const (
	Exclusive = syscall.LOCK_EX
	Shared    = syscall.LOCK_SH
	Unlock    = syscall.LOCK_UN
)

// ErrHeld means that another open file of the same name holds the lock.
var ErrHeld error = syscall.EWOULDBLOCK

// TryLock locks f with flock(2), or returns [ErrHeld] without waiting.
func TryLock(f *os.File, how int) error { return WaitLock(f, how|syscall.LOCK_NB) }

// WaitLock blocks until the lock is free and can't be cancelled: holders must be quick.
func WaitLock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// WriteFile creates or replaces a file: after a crash or an error it has its old or its new content. It does not follow a
// link at path.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// SHA256 returns the hexadecimal SHA-256 of a file. read, which may be nil, gets the size of each part.
func SHA256(ctx context.Context, path string, read func(n int)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h, buf := sha256.New(), make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := f.Read(buf)
		h.Write(buf[:n])
		if read != nil {
			read(n)
		}
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", context.Cause(ctx)
}

type file struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Value    json.RawMessage `json:"value"`
}

// Encode returns v as JSON with a version and a checksum.
func Encode(version int, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(file{version, checksum(raw), raw})
}

// Decode decodes the output of [Encode] into v, a pointer, which may be partly set after an error.
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
