package cpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sync/errgroup"
)

const pieceBytes = 4 << 20

// tiles holds the packed matrices: a mapped file, or anonymous memory.
type tiles struct {
	mem  []byte   // nil: not there
	file *os.File // nil: anonymous
}

func (t *tiles) pack(w *weights, s *share, threads int) error {
	mem, err := mapAnonymous(int(max(w.size, 1)))
	if err != nil {
		return fmt.Errorf("take %d bytes of memory for the packed model: %w", w.size, err)
	}
	largePages(mem)
	err = inParallel(w.pieces(pieceBytes, s), threads, func(p piece) error {
		at, n := p.span()
		return p.pack(mem[at : at+n])
	})
	if err != nil {
		return errors.Join(err, unmap(mem))
	}
	t.mem = mem
	return nil
}

// mapFile owns the file if it succeeds.
func (t *tiles) mapFile(f *os.File, size int64) error {
	mem, err := mapShared(f.Fd(), int(size), false)
	if err != nil {
		return fmt.Errorf("map %s: %w", f.Name(), err)
	}
	t.mem, t.file = mem, f
	return nil
}

// contains reports whether an address may fault.
func (t *tiles) contains(p uintptr) bool {
	if t.file == nil || t.mem == nil {
		return false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(t.mem)))
	return p >= at && p < at+uintptr(len(t.mem))
}

// rest frees the pages; the mapping stays.
func (t *tiles) rest() error {
	if t.file == nil {
		return t.close()
	}
	return dropPages(t.mem)
}

func (t *tiles) check() error {
	if t.file == nil {
		return nil
	}
	st, err := t.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() < int64(len(t.mem)) {
		return fmt.Errorf("%s has shrunk from %d to %d bytes: delete it, it is made again at the next start", t.file.Name(), len(t.mem), st.Size())
	}
	return nil
}

// close may be called twice.
func (t *tiles) close() error {
	var err error
	if t.mem != nil {
		err = unmap(t.mem)
	}
	if t.file != nil {
		err = errors.Join(err, t.file.Close())
	}
	t.mem, t.file = nil, nil
	return err
}

func (t *tiles) readIn(ctx context.Context, parts [][]byte, threads int) error {
	if t.file == nil {
		return nil
	}
	var jobs [][]byte
	for _, p := range parts {
		for len(p) > 0 {
			n := min(len(p), pieceBytes)
			jobs = append(jobs, p[:n])
			p = p[n:]
		}
	}
	err := inParallel(jobs, threads, func(b []byte) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		supported, err := populate(b)
		if !supported {
			touch(b)
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("read %s: %w", t.file.Name(), err)
	}
	return err
}

// touched keeps the compiler from optimizing touch away.
var touched atomic.Uint32

func touch(b []byte) {
	var sum byte
	for i := 0; i < len(b); i += 4096 {
		sum += b[i]
	}
	touched.Store(uint32(sum))
}

// No job begins after the first error. A fault in mapped memory is an error too.
func inParallel[T any](jobs []T, threads int, do func(T) error) error {
	all, ctx := errgroup.WithContext(context.Background())
	all.SetLimit(threads)
	for _, j := range jobs {
		if ctx.Err() != nil {
			break
		}
		all.Go(func() error { return guard(func() error { return do(j) }) })
	}
	return all.Wait()
}

// guard calls do, which reads mapped files on this goroutine, and turns faults into errors.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		f, ok := r.(fault)
		if !ok {
			panic(r)
		}
		err = unreadable(f)
	}()
	return do()
}
