package cpu

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/rouse-dev/rouse/engine/kernel"
	"github.com/rouse-dev/rouse/internal/ggufname"
)

// A tile file begins with a header, in little endian:
//
//	8 bytes   "RSTILES1"
//	8 bytes   size of the whole file
//	32 bytes  SHA-256 of the header from here to its end
//	32 bytes  key: SHA-256 of the model file's identity, the layout and the table
//	4 bytes   number of matrices
//	4 bytes   for each matrix: CRC-32C of a sample of it
//
// The packed matrices begin at the next multiple of headerAlign. The key covers their offsets.
const (
	tileMagic   = "RSTILES1"
	tileSuffix  = ".tiles"
	headerAlign = 4096
	fixedHeader = 8 + 8 + 32 + 32 + 4
	sampleBytes = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identify does not read the whole file.
func identify(h io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%d %d\n", st.Size(), st.ModTime().UnixNano())
	if _, err := io.CopyN(h, f, 1<<16); err != nil && err != io.EOF {
		return err
	}
	const samples = 64
	for i := range int64(samples) {
		if _, err := io.Copy(h, io.NewSectionReader(f, st.Size()/samples*i, 1024)); err != nil {
			return err
		}
	}
	return nil
}

func tileKey(path string, w *weights) ([]byte, error) {
	id, h := sha256.New(), sha256.New()
	for _, part := range ggufname.Parts(path) {
		if err := identify(id, part); err != nil {
			return nil, fmt.Errorf("identify the model file: %w", err)
		}
	}
	fmt.Fprintf(h, "%s\n%x\n", kernel.Layout(), id.Sum(nil))
	for i := range w.matrices {
		p := &w.matrices[i]
		fmt.Fprintln(h, p.from.Type, p.from.Rows, p.from.Cols, p.at, p.length)
	}
	return h.Sum(nil), nil
}

func headerBytes(w *weights) int64 {
	return (fixedHeader + 4*int64(len(w.matrices)) + headerAlign - 1) / headerAlign * headerAlign
}

func header(w *weights, key, mem []byte) []byte {
	out := make([]byte, fixedHeader, headerBytes(w))
	copy(out, tileMagic)
	binary.LittleEndian.PutUint64(out[8:], uint64(headerBytes(w)+w.size))
	copy(out[48:], key)
	binary.LittleEndian.PutUint32(out[80:], uint32(len(w.matrices)))
	for i := range w.matrices {
		p := &w.matrices[i]
		out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(sample(mem[p.at:p.at+p.length], i), castagnoli))
	}
	sum := sha256.Sum256(out[48:])
	copy(out[16:], sum[:])
	return out[:cap(out)]
}

func sample(m []byte, i int) []byte {
	n := min(len(m), sampleBytes)
	at := int(uint64(i)*2654435761>>4%uint64(len(m)-n+1)) &^ (align - 1)
	return m[at : at+n]
}

func openTiles(path string, w *weights, key []byte) (*tiles, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	t := &tiles{}
	if err = t.verify(f, w, key); err != nil {
		if t.file == nil {
			f.Close()
		}
		return nil, errors.Join(fmt.Errorf("tile file %s: %w", path, err), t.close())
	}
	return t, nil
}

func (t *tiles) verify(f *os.File, w *weights, key []byte) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	begin := headerBytes(w)
	if st.Size() != begin+w.size {
		return fmt.Errorf("it has %d bytes, want %d", st.Size(), begin+w.size)
	}
	if err := t.mapFile(f, st.Size()); err != nil {
		return err
	}
	return guard(func() error {
		if want := header(w, key, t.mem[begin:]); !bytes.Equal(t.mem[:begin], want) {
			return errors.New("its header or a sample of its contents is not as it was written")
		}
		return nil
	})
}

// The file has another name until it is complete. Its mode is 0400, so that other processes can't truncate it.
func writeTiles(path string, w *weights, key []byte, threads int) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	err = fill(f, w, key, threads)
	if err == nil {
		err = f.Chmod(0o400)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func fill(f *os.File, w *weights, key []byte, threads int) error {
	begin := headerBytes(w)
	if err := f.Truncate(begin + w.size); err != nil {
		return err
	}
	err := inParallel(w.pieces(pieceBytes, &share{of: 1}), threads, func(p piece) error {
		at, n := p.span()
		buf := make([]byte, n)
		if err := p.pack(buf); err != nil {
			return err
		}
		_, err := f.WriteAt(buf, begin+at)
		return err
	})
	if err != nil {
		return err
	}
	mem, err := mapShared(f.Fd(), int(begin+w.size), false)
	if err != nil {
		return err
	}
	var head []byte
	err = guard(func() error {
		head = header(w, key, mem[begin:])
		return nil
	})
	if err = errors.Join(err, unmap(mem)); err != nil {
		return err
	}
	_, err = f.WriteAt(head, 0)
	return err
}
