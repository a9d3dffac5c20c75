package store

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// testFiles: a file belongs to its owner, and exists after the store was opened again.
func testFiles(t *testing.T, open opener) {
	again := open(t, Limits{})
	s := again()
	mine, other := putFile(t, s, "a", "text"), putFile(t, s, "b", "b's")
	putFile(t, s, "a\x01", "of one that is called almost the same")
	s = again()
	if got := readFile(t, s, "a", mine.ID); got != "text" {
		t.Errorf("read %q", got)
	}
	if f, err := s.File("a", mine.ID); err != nil || f.Name != "in.jsonl" || f.Bytes != 4 || !f.Expires.After(f.Created) {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := s.File("a", other.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner's file: %v, want ErrNotFound", err)
	}
	if _, _, err := s.OpenFile("a", other.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another owner's file: %v, want ErrNotFound", err)
	}
	if err := s.DeleteFile("a", other.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("delete another owner's file: %v, want ErrNotFound", err)
	}
	if err := s.DeleteFile("a", mine.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.File("a", mine.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file that was deleted: %v", err)
	}
	u, err := s.NewUpload("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(u, "forgotten"); err != nil {
		t.Error(err)
	}
	u.Discard()
	if got, want := s.Bytes(), 2*recordBytes+int64(len("b's")+len("of one that is called almost the same")); got != want {
		t.Errorf("%d bytes are counted, want %d", got, want)
	}
}

// testBodies: a body can be read at any offset, by any holder.
func testBodies(t *testing.T, open opener) {
	s := open(t, Limits{})()
	var text strings.Builder
	for n := range 100_000 {
		fmt.Fprintf(&text, "%07d\n", n)
	}
	body, _, err := s.OpenFile("a", putFile(t, s, "a", text.String()).ID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	for _, n := range []int{0, 1, 99_999, 32_767, 32_768, 5, 65_535} {
		got := make([]byte, 8)
		if _, err := body.ReadAt(got, int64(8*n)); err != nil || string(got) != fmt.Sprintf("%07d\n", n) {
			t.Errorf("at %d there is %q, %v", n, got, err)
		}
	}
	long := make([]byte, 400_000)
	if _, err := body.ReadAt(long, 123_456); err != nil || string(long) != text.String()[123_456:523_456] {
		t.Errorf("a long piece is not what it was: %v", err)
	}
	if n, err := body.ReadAt(make([]byte, 20), 8*99_999); n != 8 || !errors.Is(err, io.EOF) {
		t.Errorf("over the end: %d, %v", n, err)
	}
	if end, err := body.Seek(-8, io.SeekEnd); err != nil || end != 8*99_999 {
		t.Errorf("sought to %d, %v", end, err)
	}
	if raw, err := io.ReadAll(body); err != nil || string(raw) != "0099999\n" {
		t.Errorf("the end is %q, %v", raw, err)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		t.Error(err)
	}
	if raw, err := io.ReadAll(body); err != nil || string(raw) != text.String() {
		t.Errorf("%d bytes from the beginning, %v", len(raw), err)
	}
}

// testLists: lists are ordered, paged, and show only visible files.
func testLists(t *testing.T, open opener) {
	s := open(t, Limits{})()
	var ids []string
	for n := range 5 {
		ids = append(ids, putFile(t, s, "a", fmt.Sprint("text ", n)).ID)
	}
	other := putFile(t, s, "b", "b's")
	putFile(t, s, "a\x01", "of one that is called almost the same")
	for _, tc := range []struct {
		q    Query
		want string
		more bool
	}{
		{Query{Limit: 9}, "4 3 2 1 0", false},
		{Query{Limit: 9, Oldest: true}, "0 1 2 3 4", false},
		{Query{Limit: 2}, "4 3", true},
		{Query{Limit: 2, After: ids[3]}, "2 1", true},
		{Query{Limit: 2, After: ids[1], Oldest: true}, "2 3", true},
		{Query{Limit: 2, After: ids[2], Oldest: true}, "3 4", false},
		{Query{Limit: 2, After: ids[0]}, "", false},
	} {
		list, more, err := s.Files("a", "batch", tc.q)
		var got []string
		for _, f := range list {
			for n, id := range ids {
				if f.ID == id {
					got = append(got, fmt.Sprint(n))
				}
			}
		}
		if text := strings.Join(got, " "); err != nil || text != tc.want || more != tc.more {
			t.Errorf("%+v: %q, more %v, %v; want %q, %v", tc.q, text, more, err, tc.want, tc.more)
		}
	}
	if list, _, err := s.Files("a", "else", Query{Limit: 9}); err != nil || len(list) != 0 {
		t.Errorf("files of another purpose: %v, %v", list, err)
	}
	if _, _, err := s.Files("a", "", Query{Limit: 9, After: other.ID}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a list after another owner's file: %v, want ErrNotFound", err)
	}
	if list, more, err := s.Files("nobody", "", Query{Limit: 9}); err != nil || more || len(list) != 0 {
		t.Errorf("files of nobody: %v, %v, %v", list, more, err)
	}
}

// testNames: owners and ids may be anything, and can't be used to reach another owner's data.
func testNames(t *testing.T, open opener) {
	s := open(t, Limits{})()
	owners := []string{"", ".", "..", "a/b", "a", "b", "ключ", "a b+c%2F", "a\\b", "A", strings.Repeat("x", 200)}
	ids := map[string]string{}
	for _, o := range owners {
		ids[o] = putFile(t, s, o, "of "+o).ID
	}
	for _, o := range owners {
		if list, _, err := s.Files(o, "", Query{Limit: 9}); err != nil || len(list) != 1 || list[0].ID != ids[o] || list[0].Owner != o {
			t.Errorf("%q has %+v, %v", o, list, err)
		}
		if got := readFile(t, s, o, ids[o]); got != "of "+o {
			t.Errorf("%q has %q", o, got)
		}
	}
	for _, id := range []string{"", ".", "..", "/", "../b/" + ids["b"], "b/" + ids["b"], "\x00", "%2e%2e", strings.Repeat("y", 5000), ids["b"] + "\n", "ü"} {
		if _, err := s.File("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("the file %.40q: %v", id, err)
		}
		if err := s.DeleteFile("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("delete the file %.40q: %v", id, err)
		}
		if _, err := s.Job("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("the job %.40q: %v", id, err)
		}
		if _, err := s.Cancel("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("cancel the job %.40q: %v", id, err)
		}
		if err := s.Delete("a", id); !errors.Is(err, ErrNotFound) {
			t.Errorf("delete the job %.40q: %v", id, err)
		}
		if _, err := s.Claim("a", id, false); !errors.Is(err, ErrNotFound) {
			t.Errorf("claim the job %.40q: %v", id, err)
		}
	}
}

// testLimits: no owner has more than half, and the total is bounded.
func testLimits(t *testing.T, open opener) {
	again := open(t, Limits{MaxBytes: 2 * (recordBytes + 50), Shared: "all"})
	s := again()
	try := func(owner string, n int) error {
		t.Helper()
		u, err := s.NewUpload(owner)
		if err != nil {
			return err
		}
		if _, err := u.Write(make([]byte, n)); err != nil {
			u.Discard()
			return err
		}
		_, err = u.Commit("f", "batch", 0)
		return err
	}
	if err := try("a", 51); !errors.Is(err, ErrFull) {
		t.Errorf("more than half: %v, want ErrFull", err)
	}
	if err := try("a", 50); err != nil {
		t.Error(err)
	}
	if _, err := create(s, Job{Owner: "a"}, []byte("x"), time.Minute); !errors.Is(err, ErrFull) {
		t.Errorf("a request beyond half: %v, want ErrFull", err)
	}
	if err := s.Fits("a", 1, 0); !errors.Is(err, ErrFull) {
		t.Errorf("a byte beyond half fits: %v", err)
	}
	if err := try("all", 50); err != nil {
		t.Error(err)
	}
	if err := try("b", 1); !errors.Is(err, ErrFull) {
		t.Errorf("more than all: %v, want ErrFull", err)
	}
	if s = again(); s.Bytes() != 2*(recordBytes+50) {
		t.Errorf("%d bytes after it was opened again, want all", s.Bytes())
	}
	if err := try("b", 1); !errors.Is(err, ErrFull) {
		t.Errorf("more than all, after it was opened again: %v, want ErrFull", err)
	}
}

// testRecords: small files, and batches that fail, count what their records take; a tenant has a bounded number.
func testRecords(t *testing.T, open opener) {
	s := open(t, Limits{MaxBytes: 2 * (8*recordBytes + 2*batchBytes), MaxRecords: 7})()
	in := putFile(t, s, "a", "x")
	for range 2 {
		c := newBatch(t, s, in.ID)
		var faults []Fault
		for k := range 100 {
			faults = append(faults, Fault{Code: "missing_required_parameter", Message: strings.Repeat(`\`, 128), Param: "body.model", Line: k})
		}
		if err := c.Finish(Failed, faults); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := create(s, Job{Owner: "a", Batch: Batch{Input: in.ID}}, nil, time.Hour); !errors.Is(err, ErrFull) {
		t.Errorf("a third batch: %v, want ErrFull", err)
	}
	for range 4 {
		putFile(t, s, "a", "y")
	}
	if _, err := s.NewUpload("a"); !errors.Is(err, ErrFull) {
		t.Errorf("one more record than there may be: %v, want ErrFull", err)
	}
	putFile(t, s, "b", "z")
	all, err := s.objects.List("")
	if err != nil {
		t.Fatal(err)
	}
	disk := int64(0)
	for _, o := range all {
		if !strings.HasPrefix(o.Key, "members/") && o.Key != "format" {
			disk += (o.Size + 4095) / 4096 * 4096
		}
	}
	if disk > s.Bytes() {
		t.Errorf("in blocks of 4 KiB it takes %d bytes, %d are counted", disk, s.Bytes())
	}
}

// testSweep: expired objects are gone, except the input of a running batch.
func testSweep(t *testing.T, open opener) {
	s := open(t, Limits{Keep: time.Hour})()
	old, used := putFile(t, s, "a", "old"), putFile(t, s, "a", "used")
	c := newBatch(t, s, used.ID)
	l, err := create(s, Job{Owner: "a"}, []byte("asked"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(time.Now()); n != 0 || err != nil {
		t.Errorf("%d swept at once, %v", n, err)
	}
	later := time.Now().Add(2 * time.Hour)
	if n, err := s.Sweep(later); n != 1 || err != nil {
		t.Errorf("%d swept, %v; want the old file", n, err)
	}
	if _, err := s.File("a", old.ID); !errors.Is(err, ErrNotFound) || s.Bytes() != 2*recordBytes+batchBytes+int64(len("used")+len("asked")) {
		t.Errorf("the old file: %v; %d bytes are left", err, s.Bytes())
	}
	if _, err := s.Job("a", l.ID); err != nil {
		t.Errorf("a request that waits: %v", err)
	}
	if err := c.Finish(Cancelled, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(later); n != 2 || err != nil {
		t.Errorf("%d swept, %v; want the input and the batch", n, err)
	}
}
