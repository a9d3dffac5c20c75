package chat

// Direct says whether t is rendered without Jinja.
func (t *Template) Direct() bool { return t.direct != nil }
