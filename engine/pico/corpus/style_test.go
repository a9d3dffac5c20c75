package corpus

import "testing"

func TestStyles(t *testing.T) {
	for _, s := range Styles {
		g := New(5, HeldOut)
		for range 500 {
			q := g.Sample()
			if err := s.Check(q.Prompt(), s.Apply(q.Answer)); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			if err := s.Check(q.Prompt(), q.Answer); err == nil && s.Apply(q.Answer) != q.Answer {
				t.Errorf("%s: the plain answer %q passes", s.Name, q.Answer)
			}
			if err := s.Check(q.Prompt(), s.Apply(q.Answer+" x")); err == nil {
				t.Errorf("%s: a wrong answer to %q passes", s.Name, q.Prompt())
			}
		}
	}
}
