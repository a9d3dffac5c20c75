package signin

import (
	"fmt"
	"slices"
	"strings"
)

type who struct {
	Subject, Name, Email string
	verified             bool // the address is
	groups               []string
}

func (c Config) read(subject string, all map[string]any) (who, error) {
	text := func(name string) string {
		s, _ := all[name].(string)
		return s
	}
	w := who{Subject: subject, Name: text("name"), Email: text("email"), groups: texts(all[c.GroupsClaim])}
	switch v := all["email_verified"].(type) {
	case bool:
		w.verified = v
	case string: // of some providers
		w.verified = v == "true"
	}
	if w.Subject == "" {
		return who{}, fmt.Errorf("%w: its token names nobody", errRefused)
	}
	if n := max(len(w.Subject), len(w.Name), len(w.Email)); n > mostText {
		return who{}, fmt.Errorf("%w: its token says who it is in %d bytes, want at most %d", errRefused, n, mostText)
	}
	if party := text("azp"); party != "" && party != c.ClientID { // the library checks the audience only
		return who{}, fmt.Errorf("%w: its token is for %s", errRefused, party)
	}
	return w, nil
}

// mostText bounds claims, and the provider's texts in the log.
const mostText = 256

// texts returns a claim that is a list of strings, or one.
func texts(claim any) (list []string) {
	switch v := claim.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			if s, is := one.(string); is {
				list = append(list, s)
			}
		}
	}
	return list
}

func (c Config) allows(w who) bool {
	if slices.ContainsFunc(w.groups, func(g string) bool { return slices.Contains(c.Groups, g) }) {
		return true
	}
	name, host, found := strings.Cut(w.Email, "@")
	return w.verified && found && name != "" && !strings.Contains(host, "@") && slices.ContainsFunc(c.Emails, func(allowed string) bool {
		if whole, is := strings.CutPrefix(allowed, "@"); is {
			return strings.EqualFold(whole, host)
		}
		return strings.EqualFold(allowed, w.Email)
	})
}
