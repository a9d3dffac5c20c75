package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestInitrd reads the archive as the kernel does.
func TestInitrd(t *testing.T) {
	packed, err := initrd([]byte("the first program"), []byte("tests"), []string{"-test.v", "-test.run=A|B"})
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for at := 0; at < len(data); {
		var f [13]int
		for i := range f {
			digits := string(data[at+6+8*i : at+14+8*i])
			if _, err := fmt.Sscanf(digits, "%x", &f[i]); err != nil {
				t.Fatalf("entry at %d, field %d is %q: %v", at, i, digits, err)
			}
		}
		if magic := string(data[at : at+6]); magic != "070701" {
			t.Fatalf("entry at %d begins with %q", at, magic)
		}
		size, major, minor, name := f[6], f[9], f[10], string(data[at+110:at+110+f[11]-1])
		at += (110 + f[11] + 3) &^ 3
		got = append(got, fmt.Sprintf("%s %o %d,%d %q", name, f[1], major, minor, data[at:at+size]))
		at += (size + 3) &^ 3
	}
	want := []string{
		`dev 40755 0,0 ""`, `dev/console 20600 5,1 ""`, `dev/null 20666 1,3 ""`, `tmp 41777 0,0 ""`,
		`init 100755 0,0 "the first program"`, `tests 100755 0,0 "tests"`, `arguments 100644 0,0 "-test.v\n-test.run=A|B"`,
		`TRAILER!!! 0 0,0 ""`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got:\n%s\nwant:\n%s", g, w)
	}
}
