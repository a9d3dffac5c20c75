package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cespare/xxhash/v2"

	"github.com/rouse-dev/rouse/engine/infer"
)

func (s *server) sleep(level int, keep []int32) error {
	if k, ok := s.inf.(infer.Keeper); ok && level == 1 && len(keep) > 0 {
		return k.SleepKeeping(keep)
	}
	return s.inf.Sleep(level)
}

func (s *server) saveBlocks(ctx context.Context, f *File) ([]uint64, error) {
	k, err := s.saves(f)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(f.Path, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("save blocks: %w", err)
	}
	sums, err := writeBlocks(ctx, k, file, f)
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("save blocks: %w", err)
	}
	return sums, nil
}

func writeBlocks(ctx context.Context, k infer.Keeper, to io.WriterAt, f *File) ([]uint64, error) {
	buf := make([]byte, k.BlockBytes())
	sums := make([]uint64, 0, len(f.Blocks))
	for i, b := range f.Blocks {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := k.Export(b, buf); err != nil {
			return nil, err
		}
		if _, err := to.WriteAt(buf, f.Offset+int64(i)*int64(len(buf))); err != nil {
			return nil, err
		}
		sums = append(sums, xxhash.Sum64(buf))
	}
	return sums, nil
}

func (s *server) loadBlocks(ctx context.Context, f *File) error {
	k, err := s.saves(f)
	if err != nil {
		return err
	}
	file, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("load blocks: %w", err)
	}
	defer file.Close()
	buf := make([]byte, k.BlockBytes())
	for i, b := range f.Blocks {
		if ctx.Err() != nil {
			return fmt.Errorf("load blocks: %w", context.Cause(ctx))
		}
		if _, err := file.ReadAt(buf, f.Offset+int64(i)*int64(len(buf))); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("load blocks: block %d of %d: %w", i+1, len(f.Blocks), err)
		}
		if i >= len(f.Sums) || xxhash.Sum64(buf) != f.Sums[i] {
			return fmt.Errorf("load blocks: block %d of %d in %s is not as it was written", i+1, len(f.Blocks), f.Path)
		}
		if err := k.Import(b, buf); err != nil {
			return fmt.Errorf("load blocks: %w", err)
		}
	}
	return nil
}

func (s *server) saves(f *File) (infer.Keeper, error) {
	k, ok := s.inf.(infer.Keeper)
	switch {
	case !ok || s.step.shared:
		return nil, errors.New("this worker's cache blocks can't be saved")
	case f == nil || f.Path == "" || f.Offset < 0:
		return nil, errors.New("no file is named")
	}
	return k, nil
}
