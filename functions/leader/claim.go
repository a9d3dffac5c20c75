package leader

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rouse-dev/rouse/internal/disk"
)

// claim writes into the folder what its workers run, or checks that the present workers run the same. It holds until the file is closed.
func claim(dir, runs string) (*os.File, error) {
	path := filepath.Join(dir, "runs")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the workers' claim: %w", err)
	}
	if err := agree(f, runs); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// agree takes f's lock shared with the other workers. If there are none, it writes to f first.
func agree(f *os.File, runs string) error {
	err := disk.TryLock(f, disk.Exclusive)
	switch {
	case err == nil:
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(runs+"\n"), 0)
		}
		if err != nil {
			return fmt.Errorf("write the workers' claim: %w", err)
		}
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("lock %s: %w; choose a folder on a file system that has locks", f.Name(), err)
	}
	// Another worker may have written in between.
	if err := disk.WaitLock(f, disk.Shared); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		return fmt.Errorf("read the workers' claim: %w", err)
	}
	theirs := strings.TrimSuffix(string(raw), "\n")
	if theirs == runs {
		return nil
	}
	name, _, _ := strings.Cut(theirs, " ")
	if own, _, _ := strings.Cut(runs, " "); name == own {
		return fmt.Errorf("the workers of the folder %s run %s with another runtime, model or options: start all with the same, or choose another folder", filepath.Dir(f.Name()), name)
	}
	return fmt.Errorf("the workers of the folder %s run another function, %s: choose another folder", filepath.Dir(f.Name()), name)
}
