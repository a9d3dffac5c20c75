package decide

import (
	"math"
	"testing"
	"time"

	"github.com/rouse-dev/rouse/api"
)

func TestEpochs(t *testing.T) {
	clock := uint64(time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()) // the last year that fits
	if first := FirstEpoch(1); first <= clock || termOf(first) != 1 || termOf(clock) != 0 {
		t.Errorf("the first term begins at %d, a clock gives %d", first, clock)
	}
	for _, term := range []uint64{1, 2, 1000, 1 << 31, mostTerm - 1} {
		last := FirstEpoch(term+1) - 1
		if termOf(last) != term || !api.StaleEpoch(last, FirstEpoch(term+1)) || api.StaleEpoch(last, FirstEpoch(term)) {
			t.Errorf("term %d ends at %d, of term %d", term, last, termOf(last))
		}
	}
	if termOf(math.MaxUint64) != mostTerm || FirstEpoch(mostTerm+7) != FirstEpoch(mostTerm) {
		t.Error("a term beyond the last is not the last")
	}
	if api.StaleEpoch(7, 7) {
		t.Error("an order that is repeated is refused")
	}
}
