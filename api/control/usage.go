package control

import "github.com/rouse-dev/rouse/api"

// UsageMessage is what one activator of a cluster tells another of its clients' use, and how the other answers ([PathUsage]).
//
// What was used is told in numbered parts, which are repeated until the receiver has said that it has taken them: a
// message or an answer that is lost, late or doubled changes nothing.
type UsageMessage struct {
	// From is the sender's pod, and Run its process.
	From string `json:"from"`
	Run  string `json:"run"`
	// Taken is the number of the last part of the process TakenOf of the receiver that the sender has taken.
	Taken   uint64 `json:"taken,omitempty"`
	TakenOf string `json:"takenOf,omitempty"`
	// Parts have rising numbers. All that the receiver has not taken are there, but those that do not fit.
	Parts []UsagePart `json:"parts,omitempty"`
	// Meet asks for All: the sender has just begun, and knows of no use.
	Meet bool `json:"meet,omitempty"`
	// All is what each account has used of what its limits allow now, as far as the sender knows; what runs is the sender's own.
	// Parts up to the number Before are in it.
	All    map[string]Use `json:"all,omitzero"`
	Before uint64         `json:"before,omitempty"`
}

// UsagePart is what was used in a short time.
type UsagePart struct {
	Number   uint64         `json:"number"`
	Accounts map[string]Use `json:"accounts,omitempty"`
	Clients  []ClientUse    `json:"clients,omitempty"`
}

// Use is what the requests of an account have used; in a part it may be negative: an estimate was too high, or a request has ended.
type Use struct {
	Requests float64 `json:"requests,omitempty"`
	Tokens   float64 `json:"tokens,omitempty"`
	Running  float64 `json:"running,omitempty"`
}

// Plus is the sum.
func (u Use) Plus(v Use) Use {
	return Use{u.Requests + v.Requests, u.Tokens + v.Tokens, u.Running + v.Running}
}

// Minus is the difference.
func (u Use) Minus(v Use) Use {
	return Use{u.Requests - v.Requests, u.Tokens - v.Tokens, u.Running - v.Running}
}

// Max is the larger of each.
func (u Use) Max(v Use) Use {
	return Use{max(u.Requests, v.Requests), max(u.Tokens, v.Tokens), max(u.Running, v.Running)}
}

// ClientUse is what the requests of a client have cost a function, in tokens of input. It may be negative.
type ClientUse struct {
	Function api.FunctionName `json:"function"`
	Priority int              `json:"priority,omitempty"`
	Client   string           `json:"client"`
	Cost     float64          `json:"cost"`
}
