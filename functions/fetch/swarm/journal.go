package swarm

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// resume takes what an earlier process has left: the chunks of the journal that the file still holds.
func (d *download) resume(ctx context.Context) error {
	if d.job.Journal == "" {
		return nil
	}
	last := map[int]entry{}
	old, err := os.Open(d.job.Journal)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read what has come: %w", err)
	default:
		for lines := bufio.NewScanner(old); lines.Scan(); {
			var e entry
			if json.Unmarshal(lines.Bytes(), &e) == nil { // a line that a crash has cut is none
				last[e.Chunk] = e
			}
		}
		old.Close()
	}
	if d.journal, err = os.OpenFile(d.job.Journal, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("note what comes: %w", err)
	}
	buf := make([]byte, d.mine.chunk)
	for i := range d.chunks {
		e, ok := last[i]
		if !ok || e.Sum == nil {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at, n := d.mine.span(i)
		if m, err := d.job.File.ReadAt(buf[:n], at); int64(m) < n || err != nil && err != io.EOF || Sum(sha256.Sum256(buf[:n])) != *e.Sum {
			continue
		}
		c := &d.chunks[i]
		c.have, c.proven, c.sum, c.from = true, e.What == proven, *e.Sum, "before"
		d.missing--
		d.got(n)
		d.mine.say(i, e.What, c.sum)
		d.note(i, c)
	}
	return nil
}

// note writes what is had of chunk i into the journal. Without it the chunk is fetched again after a crash.
func (d *download) note(i int, c *chunk) {
	if d.journal == nil {
		return
	}
	e := entry{Chunk: i, What: lost}
	if c.have {
		e.What, e.Sum = relayed, &c.sum
		if c.proven {
			e.What = proven
		}
	}
	if line, err := json.Marshal(e); err == nil {
		_, _ = d.journal.Write(append(line, '\n'))
	}
}

func (d *download) closeJournal() {
	if d.journal != nil {
		d.journal.Close()
	}
}
