package main

import (
	"strings"
	"testing"
)

func TestExecuted(t *testing.T) {
	const loop = `----------------
IN: github.com/rouse-dev/rouse/engine/kernel.addAsm
0x00001000:  ad400400  ldp      q0, q1, [x0]
0x00001004:  f1002042  subs     x2, x2, #8
0x00001008:  54ffff81  b.ne     #0x1000

Trace 0: 0x7f00 [0000000000001001/0000000000001000/00000001/00080200] kernel.addAsm
Trace 0: 0x7f00 [0000000000001001/0000000000001000/00000001/00080200] kernel.addAsm
----------------
IN: github.com/rouse-dev/rouse/engine/kernel.addAsm
0x0000100c:  d65f03c0  ret

what a test prints
Trace 0: 0x7f80 [0000000000001001/000000000000100c/00000001/00080200] kernel.addAsm
`
	if got, err := executed(strings.NewReader(loop)); got != 7 || err != nil {
		t.Errorf("got %d, %v, want 7", got, err)
	}
	// A block that is translated again may be longer.
	again := loop + strings.Replace(loop, "IN: github.com/rouse-dev/rouse/engine/kernel.addAsm\n", "IN: kernel.addAsm\n0x00001000:  d503201f  nop\n", 1)
	if got, err := executed(strings.NewReader(again)); got != 7+9 || err != nil {
		t.Errorf("translated again: got %d, %v, want 16", got, err)
	}
	for _, bad := range []string{
		"Trace 0: 0x7f00\n",
		"Trace 0: 0x7f00 [0000000000001001/0000000000001000/00000001/00080200] never translated\n",
		"IN: kernel.addAsm\n0xzz:  ret\n",
	} {
		if got, err := executed(strings.NewReader(bad)); err == nil {
			t.Errorf("of %q: got %d, want an error", bad, got)
		}
	}
}
