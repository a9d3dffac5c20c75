package process

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
)

// Log keeps the last lines of output and passes them on to followers. The zero value keeps nothing: see [NewLog].
type Log struct {
	echo io.Writer

	mu        sync.Mutex // guards the fields below
	lines     []string   // a ring once it is full
	next      int        // of the next line in a full ring
	marked    int        // lines since the mark
	followers map[chan string]bool
}

// followerQueue is how many lines a follower may lag behind before it loses some.
const followerQueue = 256

// NewLog returns a log of the last keep lines. Each line also goes to echo, if that is not nil: a slow echo slows the writer.
func NewLog(keep int, echo io.Writer) *Log {
	return &Log{echo: echo, lines: make([]string, 0, keep), followers: map[chan string]bool{}}
}

// Write adds one line. Its signature fits [Spec.Lines].
func (l *Log) Write(line []byte) {
	s := string(line)
	if l.echo != nil {
		_, _ = io.WriteString(l.echo, s+"\n")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) < cap(l.lines) {
		l.lines = append(l.lines, s)
	} else if len(l.lines) > 0 {
		l.lines[l.next] = s
		l.next = (l.next + 1) % len(l.lines)
	}
	l.marked++
	for f := range l.followers {
		select {
		case f <- s:
		default:
		}
	}
}

// Tail returns the last n lines that are kept, oldest first; n < 0: all.
func (l *Log) Tail(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail(n)
}

func (l *Log) tail(n int) []string {
	all := slices.Concat(l.lines[l.next:], l.lines[:l.next])
	if n >= 0 && n < len(all) {
		all = all[len(all)-n:]
	}
	return all
}

// Mark says that another process begins to write: earlier output does not explain its failures.
func (l *Log) Mark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marked = 0
}

// Message returns the last n lines since the mark, or fewer, as one text.
func (l *Log) Message(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.tail(min(n, l.marked)), "\n")
}

// Follow calls f with the last n lines and then each new one, until ctx ends or f fails. A slow follower loses lines.
func (l *Log) Follow(ctx context.Context, n int, f func(line string) error) error {
	fresh := make(chan string, followerQueue) // from Write; never closed
	l.mu.Lock()
	old := l.tail(n)
	l.followers[fresh] = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.followers, fresh)
		l.mu.Unlock()
	}()
	for _, line := range old {
		if err := f(line); err != nil {
			return err
		}
	}
	for {
		select {
		case line := <-fresh:
			if err := f(line); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}
