package activator

import (
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/api"
)

// Headers of inference gateways: those of the llm-d router, and the names that the Gateway API inference extension had for
// them. That of the tenant is package peer's.
var (
	headersObjective = [...]string{"X-Llm-D-Inference-Objective", "X-Gateway-Inference-Objective"}
	headersTTFT      = [...]string{"X-Llm-D-Slo-Ttft-Ms", "X-Gateway-Slo-Ttft-Ms", "X-Slo-Ttft-Ms"}
	headersTPOT      = [...]string{"X-Llm-D-Slo-Tpot-Ms", "X-Gateway-Slo-Tpot-Ms", "X-Slo-Tpot-Ms"}
)

// headerDropped says why a request was not served, in the words of the llm-d router.
const headerDropped = "X-Llm-D-Request-Dropped-Reason"

// dropped are its values.
var dropped = map[string]string{
	api.CodeHoldFull:    "rejected-saturated",
	api.CodeBusy:        "rejected-saturated",
	api.CodeHoldTimeout: "rejected-ttl-expired",
	api.CodeNoCapacity:  "rejected-no-endpoints",
	api.CodeStartFailed: "rejected-no-endpoints",
	api.CodeShutdown:    "rejected-shutting-down",
	api.CodeClientLeft:  "rejected-context-cancelled",
	api.CodeEvicted:     "evicted-priority",
}

// first is the first of some headers that a request has; empty: it has none.
func first(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// objectives reads what the request asks of its times. The time to the first token orders the requests of one client. The
// time of a token is for whoever decides by it behind us: it is only looked at.
func (r *request) objectives() *api.Error {
	for _, names := range [][]string{headersTTFT[:], headersTPOT[:]} {
		v := first(r.in.Header, names)
		if v == "" {
			continue
		}
		ms, err := strconv.ParseFloat(v, 64)
		if err != nil || !(ms > 0 && ms <= 1e9) {
			return api.BadRequest("", "the header %s is %s: want milliseconds, such as 500", names[0], quoteName(v))
		}
		if &names[0] == &headersTTFT[0] {
			r.due = r.begun.Add(time.Duration(ms * float64(time.Millisecond)))
		}
	}
	return nil
}

// objective gives the request the priority of the objective that it names, where objectives are declared.
func (c *call) objective() *api.Error {
	name := first(c.req.in.Header, headersObjective[:])
	if name == "" || c.a.deps.Keys == nil {
		return nil
	}
	priority, declared, some := c.a.deps.Keys.Objective(name)
	switch {
	case !some:
		return nil
	case !declared:
		return api.BadRequest("", "there is no objective %s: the file of keys declares others", quoteName(name))
	}
	c.req.Priority, c.req.Tier = priority, ""
	return nil
}
