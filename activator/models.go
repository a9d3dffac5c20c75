package activator

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gorilla/mux"

	"github.com/rouse-dev/rouse/api"
)

// model is OpenAI's, with Anthropic's and our own fields.
type model struct {
	ID      api.ModelName `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	OwnedBy string        `json:"owned_by"`

	Type      string        `json:"type"`
	Display   api.ModelName `json:"display_name"`
	CreatedAt time.Time     `json:"created_at"`

	Parent api.ModelName `json:"parent,omitempty"`
	Rouse  modelState    `json:"rouse"`
}

type modelState struct {
	Function api.FunctionName `json:"function"`
	// The state of the instance that accepts a request soonest.
	State api.State `json:"state"`
}

func (m listed) object() model {
	state := api.Gone
	for _, b := range m.t.shares {
		st, found := b.f.Best()
		if found && st.State.Sooner(state) {
			state = st.State
		}
	}
	created := m.t.first().Created.UTC().Truncate(time.Second)
	return model{ID: m.name, Object: "model", Created: created.Unix(), OwnedBy: "rouse", Type: "model", Display: m.name, CreatedAt: created, Parent: m.parent, Rouse: modelState{Function: m.t.service, State: state}}
}

// A nil has accepts all.
func (m listed) visible(has func(names ...string) bool) bool {
	var adapter api.ModelName
	if m.parent != "" {
		adapter = m.name
	}
	return has == nil || has(append(namesFor(m.t.first(), string(m.name), adapter), string(m.name))...)
}

// mostModels bounds a page of models, as at Anthropic.
const mostModels = 1000

// Limit returns how many entries of a list are asked for.
func Limit(v url.Values, usual, most int) (int, error) {
	if v.Get("after_id") != "" && v.Get("before_id") != "" {
		return 0, api.BadRequest("before_id", "before_id and after_id are both there: want one of them")
	}
	text := v.Get("limit")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, api.BadRequest("limit", "limit is %.40q: want a number from 1 to %d", text, most)
	}
	return n, nil
}

// Page is a part of a list in the format of OpenAI's clients; without Object, of Anthropic's.
type Page[T any] struct {
	Object string  `json:"object,omitempty"`
	Data   []T     `json:"data"`
	First  *string `json:"first_id"`
	Last   *string `json:"last_id"`
	More   bool    `json:"has_more"`
}

// PageOf returns a page of records.
func PageOf[T, R any](records []R, more bool, object func(R) T, id func(R) string) Page[T] {
	p := Page[T]{Object: "list", Data: make([]T, len(records)), More: more}
	for k, r := range records {
		p.Data[k] = object(r)
	}
	if n := len(records); n > 0 {
		first, last := id(records[0]), id(records[n-1])
		p.First, p.Last = &first, &last
	}
	return p
}

// As in Anthropic's API, listModels goes on after after_id or before before_id.
func (a *Activator) listModels(w http.ResponseWriter, r *http.Request, has func(...string) bool) {
	all := slices.DeleteFunc(slices.Clone(a.names.Load().models), func(m listed) bool { return !m.visible(has) })
	q := r.URL.Query()
	limit, err := Limit(q, len(all), mostModels)
	name := func(m listed) string { return string(m.name) }
	at := func(field string) int {
		id := q.Get(field)
		k := slices.IndexFunc(all, func(m listed) bool { return name(m) == id })
		if k < 0 && id != "" {
			err = api.BadRequest(field, "there is no model %.80q to go on from", id)
		}
		return k
	}
	list := all[at("after_id")+1:]
	if before := at("before_id"); before >= 0 {
		list = all[:before]
	}
	if err != nil {
		a.refuse(w, r, api.AsError(err))
		return
	}
	more := len(list) > limit
	if more && q.Get("before_id") != "" {
		list = list[len(list)-limit:]
	} else if more {
		list = list[:limit]
	}
	writeJSON(w, r, PageOf(list, more, listed.object, name))
}

func (a *Activator) showModel(w http.ResponseWriter, r *http.Request) {
	if m, ok := a.find(w, r); ok {
		writeJSON(w, r, m.object())
	}
}

// find returns the model that the path names, or answers the request.
func (a *Activator) find(w http.ResponseWriter, r *http.Request) (m listed, ok bool) {
	name := mux.Vars(r)["model"]
	names := a.names.Load()
	t, err := names.find(name, a.mayList(r))
	if err != nil {
		a.missing(w, r, name, err)
		return m, false
	}
	m = listed{name: api.ModelName(name), t: t}
	if f := t.first(); names.adapter(name, f) != "" {
		m.parent = f.Spec().Model
	}
	_, account, bad := a.clientOf(r)
	switch {
	case bad != nil:
		a.unauthorized(w, r, api.AsError(bad))
	case account != nil && !m.visible(account.Rights().Allows):
		a.refuse(w, r, notAllowed(account, name))
	default:
		return m, true
	}
	return m, false
}

func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	Identify(w, r)
	api.WriteJSON(w, http.StatusOK, v)
}

// Stats returns a function's activity; false: it is not declared.
func (a *Activator) Stats(name api.FunctionName) (s api.Activity, ok bool) {
	names := a.names.Load()
	f := names.byName[name]
	if f == nil {
		return api.Activity{}, false
	}
	s = f.Activity()
	s.LostNames, s.WrongFallbacks = names.lostBy(f.Spec()), names.wrongFallbacks(f)
	return s, true
}
