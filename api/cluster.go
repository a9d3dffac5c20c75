package api

// Traffic says how the requests for a service are divided among its functions. In a cluster a service is a Knative
// Service, and each of its revisions is a function. On one machine every function is its own service.
type Traffic struct {
	// Service is the Knative Service, "namespace/name".
	Service FunctionName `json:"service"`
	// Shares lists the revisions that receive requests; empty: none is ready yet.
	Shares []Share `json:"shares"`
}

// Share is one revision's part of the traffic.
type Share struct {
	Function FunctionName `json:"function"`
	// Percent is above zero; the shares of one service add up to 100.
	Percent int `json:"percent"`
}
