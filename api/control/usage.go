package control

import "github.com/rouse-dev/rouse/api"

// UsageMessage reports the use of an activator's clients to another one, which answers alike ([PathUsage]).
// Numbered parts are repeated until confirmed: a lost, late or repeated message changes nothing.
type UsageMessage struct {
	// The pod, or the front door's declared name, and its process.
	From string `json:"from"`
	Run  string `json:"run"`
	// The last part received from the receiver's process TakenOf.
	Taken   uint64 `json:"taken,omitempty"`
	TakenOf string `json:"takenOf,omitempty"`
	// What the receiver has not confirmed, as far as it fits.
	Parts []UsagePart `json:"parts,omitempty"`
	// The sender can't reach another activator.
	Apart bool `json:"apart,omitempty"`
	// The sender has just started, and asks for All.
	Meet bool `json:"meet,omitempty"`
	// Use of each account within its limits, with parts up to Before; running requests are the sender's.
	All    map[string]Use `json:"all,omitzero"`
	Before uint64         `json:"before,omitempty"`
	// Comes with All.
	Budgets map[string]Budget `json:"budgets,omitempty"`
}

// Budget has the use of an account in the present day and month, of UTC.
type Budget [2]Spent

// Spent is the use in a day (2006-01-02) or a month (2006-01).
type Spent struct {
	In                 string
	Tokens, GPUSeconds float64
}

// UsagePart is the use in a short interval.
type UsagePart struct {
	Number uint64 `json:"number"`
	// It could not be sent when due, or is the sender's own part.
	Late     bool           `json:"late,omitempty"`
	Accounts map[string]Use `json:"accounts,omitempty"`
	Clients  []ClientUse    `json:"clients,omitempty"`
}

// Use is an account's use. In a part it may be negative: an estimate was too high, or a request has ended.
type Use struct {
	Requests float64 `json:"requests,omitempty"`
	Tokens   float64 `json:"tokens,omitempty"`
	Running  float64 `json:"running,omitempty"`
	// For Budgets; All has neither.
	Spent      float64 `json:"spent,omitempty"`
	GPUSeconds float64 `json:"gpuSeconds,omitempty"`
}

// Plus returns u + v.
func (u Use) Plus(v Use) Use { return u.Minus(Use{}.Minus(v)) }

// Minus returns u - v.
func (u Use) Minus(v Use) Use { return u.with(v, func(a, b float64) float64 { return a - b }) }

// Max returns the maximum of each field, at most 2⁵⁰: sums fit in an int.
func (u Use) Max(v Use) Use {
	return u.with(v, func(a, b float64) float64 { return min(max(a, b), 1<<50) })
}

func (u Use) with(v Use, do func(a, b float64) float64) Use {
	return Use{do(u.Requests, v.Requests), do(u.Tokens, v.Tokens), do(u.Running, v.Running), do(u.Spent, v.Spent), do(u.GPUSeconds, v.GPUSeconds)}
}

// ClientUse is the cost of a client's requests, in input tokens; it may be negative. Source is a hash of their
// front door's operator.
type ClientUse struct {
	Function api.FunctionName `json:"function"`
	Priority int              `json:"priority,omitempty"`
	Source   uint64           `json:"source,omitempty"`
	Client   string           `json:"client"`
	Cost     float64          `json:"cost"`
}
