package api

import "time"

// Activity is what an activator, or all of them together, sees of one function, for people.
type Activity struct {
	Waiting     int           `json:"waiting"`
	OldestAge   time.Duration `json:"oldestAge"`
	HeldBytes   Bytes         `json:"heldBytes"`
	Running     int           `json:"running"`
	LastRequest time.Time     `json:"lastRequest"`
	// Waking is the instance that the activator is waking; empty for none.
	Waking InstanceID `json:"waking,omitempty"`
	// Failed says why requests are refused; empty while they are not.
	Failed string `json:"failed,omitempty"`
	// LostNames say which of its service's names mean another, each with the reason.
	LostNames []string `json:"lostNames,omitempty"`
	// Instances are their last reports.
	Instances []InstanceStatus `json:"instances"`
}
