package control

import "github.com/rouse-dev/rouse/api"

// UsageMessage reports the use of one activator's clients to another activator or front door; the answer has the
// same type ([PathUsage]). Use is sent in numbered parts, repeated until the receiver confirms them: a lost, late
// or repeated message changes nothing.
type UsageMessage struct {
	// From is the sender's pod, or the name by which the receiver declares the front door; Run is its process.
	From string `json:"from"`
	Run  string `json:"run"`
	// Taken is the number of the last part that the sender has received from the receiver's process TakenOf.
	Taken   uint64 `json:"taken,omitempty"`
	TakenOf string `json:"takenOf,omitempty"`
	// Parts have ascending numbers and are all that the receiver has not confirmed, as far as they fit.
	Parts []UsagePart `json:"parts,omitempty"`
	// Apart: the sender can't reach an activator other than the receiver.
	Apart bool `json:"apart,omitempty"`
	// Meet asks for All: the sender has just started. In an answer it asks for nothing.
	Meet bool `json:"meet,omitempty"`
	// All is the use of each account within its limits, as far as the sender knows, with parts up to the number
	// Before; running requests are the sender's own.
	All    map[string]Use `json:"all,omitzero"`
	Before uint64         `json:"before,omitempty"`
	// Budgets come with All: the use of day and month.
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
	// Late: the sender could not send it when due, or was apart and used its own part.
	Late     bool           `json:"late,omitempty"`
	Accounts map[string]Use `json:"accounts,omitempty"`
	Clients  []ClientUse    `json:"clients,omitempty"`
}

// Use is the use by an account's requests. In a part it may be negative: an estimate was too high, or a request has
// ended.
type Use struct {
	Requests float64 `json:"requests,omitempty"`
	Tokens   float64 `json:"tokens,omitempty"`
	Running  float64 `json:"running,omitempty"`
	// These count in a day and a month; All has neither, but Budgets.
	Spent      float64 `json:"spent,omitempty"`
	GPUSeconds float64 `json:"gpuSeconds,omitempty"`
}

// Plus returns u + v.
func (u Use) Plus(v Use) Use { return u.Minus(Use{}.Minus(v)) }

// Minus returns u - v.
func (u Use) Minus(v Use) Use { return u.with(v, func(a, b float64) float64 { return a - b }) }

// Max returns the maximum of each field, at most 2⁵⁰: sums of such uses fit in an int.
func (u Use) Max(v Use) Use {
	return u.with(v, func(a, b float64) float64 { return min(max(a, b), 1<<50) })
}

func (u Use) with(v Use, do func(a, b float64) float64) Use {
	return Use{do(u.Requests, v.Requests), do(u.Tokens, v.Tokens), do(u.Running, v.Running), do(u.Spent, v.Spent), do(u.GPUSeconds, v.GPUSeconds)}
}

// ClientUse is the cost of a client's requests to a function, in input tokens; it may be negative. Source is a hash
// of the operator of their front door; 0: none.
type ClientUse struct {
	Function api.FunctionName `json:"function"`
	Priority int              `json:"priority,omitempty"`
	Source   uint64           `json:"source,omitempty"`
	Client   string           `json:"client"`
	Cost     float64          `json:"cost"`
}
