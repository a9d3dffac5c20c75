package activator

import (
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-dev/rouse/activator/queue"
	"github.com/rouse-dev/rouse/api"
)

// Headers of inference gateways: first the llm-d router's names, then the earlier ones of the Gateway API inference
// extension. Package peer has the header of the tenant.
var (
	headersObjective = [...]string{"X-Llm-D-Inference-Objective", "X-Gateway-Inference-Objective"}
	headersTTFT      = [...]string{"X-Llm-D-Slo-Ttft-Ms", "X-Gateway-Slo-Ttft-Ms", "X-Slo-Ttft-Ms"}
	headersTPOT      = [...]string{"X-Llm-D-Slo-Tpot-Ms", "X-Gateway-Slo-Tpot-Ms", "X-Slo-Tpot-Ms"}
)

// headerDropped is the llm-d router's header for the reason of a refusal.
const headerDropped = "X-Llm-D-Request-Dropped-Reason"

// dropped maps error codes to values of headerDropped.
var dropped = map[string]string{
	api.CodeHoldFull:      "rejected-saturated",
	api.CodeBusy:          "rejected-saturated",
	queue.CodeHoldTimeout: "rejected-ttl-expired",
	api.CodeNoCapacity:    "rejected-no-endpoints",
	api.CodeStartFailed:   "rejected-no-endpoints",
	api.CodeShutdown:      "rejected-shutting-down",
	api.CodeClientLeft:    "rejected-context-cancelled",
	queue.CodeEvicted:     "evicted-priority",
}

// first returns the first nonempty value among some headers, or "".
func first(h http.Header, names []string) string {
	for _, name := range names {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// objectives reads the request's latency objectives. The time to the first token orders one client's requests. The
// time per output token is only checked: a scheduler behind us may use it.
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

// objective sets the priority from the objective that the request names, if objectives are declared.
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
