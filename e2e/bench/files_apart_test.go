package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain makes this program the process of a machine, when told so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == machineProgram {
		if err := machine(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "machine:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestApart: eight processes on machines of their own fetch a file at once. One is killed, one's link stalls, one spoils
// what it sends; the others have it, and the source sends a copy and what those three were to fetch. Who comes later has it too, although
// one there has another file.
func TestApart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := newStage(ctx, fileOptions{size: 48, rate: 12})
	if errors.Is(err, errNoLAN) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	o, err := s.race(ctx, 8, faults{kill: true, stall: true, spoil: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("took %s", o.took)
	if copies := float64(o.sent) / float64(len(s.content)); copies > 1.5 { // each of the three may cost what it had to fetch itself
		t.Errorf("the source sends %.2f copies of the file", copies)
	}
	if spoiler := s.machines[6]; !s.named(saysSpoils, spoiler) {
		t.Error("nobody has found out who spoils chunks")
	}

	before, err := s.sent(ctx, s.source.host)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(s.content)
	for at := 100; at < len(other); at += 8 << 20 {
		other[at] ^= 1
	}
	if err := os.WriteFile(s.path("false"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	liar, err := s.begin(ctx, 24, role{As: "liar", File: s.path("false")})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 { // one that comes late need not ask the liar, where others are quicker
		late, err := s.begin(ctx, 24, role{As: "node"})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(late.tell(), late.says(ctx, s.has())); err != nil {
			t.Fatal(err)
		}
		after, err := s.sent(ctx, s.source.host)
		if err != nil {
			t.Fatal(err)
		}
		if copies := float64(after-before) / float64(len(s.content)); copies > 1.1 { // no chunk comes from there twice
			t.Errorf("the source sends %.2f copies more to one who comes late", copies)
		}
		if s.named(saysDiffers, liar) {
			return
		}
		before = after
	}
	t.Error("no log of those who come late names who has sent something else")
}

// named reports whether any machine's log says this of a machine.
func (s *stage) named(says string, p *machineProcess) bool {
	for _, o := range s.machines {
		for line := range strings.Lines(o.Log()) {
			if strings.Contains(line, says) && strings.Contains(line, s.address(p.host)+":8013") {
				return true
			}
		}
	}
	return false
}
