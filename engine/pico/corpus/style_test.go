package corpus

import (
	"fmt"
	"testing"
)

// judge judges an answer as Check does, and the style beside.
func (s Style) judge(prompt, answer string) error {
	plain, ok := s.plain(prompt, answer)
	if !ok {
		return fmt.Errorf("%q is no %s answer", answer, s.Name)
	}
	return Check(prompt, plain)
}

func TestStyles(t *testing.T) {
	for _, s := range Styles {
		g := New(5, HeldOut)
		for range 500 {
			q := g.Sample()
			if err := s.judge(q.Prompt(), s.Apply(q.Answer)); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			if err := s.judge(q.Prompt(), q.Answer); err == nil && s.Apply(q.Answer) != q.Answer {
				t.Errorf("%s: the plain answer %q passes", s.Name, q.Answer)
			}
			if err := s.judge(q.Prompt(), s.Apply(q.Answer+" x")); err == nil {
				t.Errorf("%s: a wrong answer to %q passes", s.Name, q.Prompt())
			}
		}
	}
}
