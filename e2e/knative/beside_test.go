package knative

import (
	"sync"
	"testing"
)

// Tests that stand in one another's way are a lane: they run one after the other, beside all tests that run
// in parallel. Tests that are in everybody's way (they stop or replace a part of the system, or take the
// node's room) run alone, before.

// atOnce is how many tests run at once, however few processors there are: they wait more than they compute.
const atOnce = 4

// queue has the parallel tests in the order of the files, of which this one is the first: what takes longest begins first.
// The testing package begins them in no order.
var queue = struct {
	sync.Cond
	given, begun, running int
}{Cond: sync.Cond{L: new(sync.Mutex)}}

// parallel is t.Parallel for a test that is not within another: at most [atOnce] run, and begin in order.
func parallel(t *testing.T) {
	t.Helper()
	mine := queue.given // such calls come one after the other, before the first parallel test goes on
	queue.given++
	t.Cleanup(func() {
		queue.L.Lock()
		defer queue.L.Unlock()
		queue.running--
		queue.Broadcast()
	})
	t.Parallel()
	queue.L.Lock()
	defer queue.L.Unlock()
	for queue.begun < mine || queue.running == atOnce {
		queue.Wait()
	}
	queue.begun++
	queue.running++
	queue.Broadcast()
}

// lane is tests that run in this order.
type lane []struct {
	name string
	run  func(*testing.T)
}

func (l lane) run(t *testing.T) {
	for _, test := range l {
		t.Run(test.name, test.run)
	}
}

// TestGPUs has those that change the node's GPUs.
func TestGPUs(t *testing.T) {
	parallel(t)
	lane{
		{"two-models-share-one-device", twoModelsShareOneDevice},
		{"two-pods-of-a-function", twoPodsOfAFunction},
		{"dual-pods-swap", dualPodsSwap},
		{"pods-that-the-autoscaler-may-make", podsThatTheAutoscalerMayMake},
		{"a-function-that-lies-about-its-memory", aFunctionThatLiesAboutItsMemory},
		{"a-sleeper-that-keeps-much", aSleeperThatKeepsMuch},
		{"a-wake-that-hangs", aWakeThatHangs},
		{"a-device-is-lost", aDeviceIsLost},
		{"streams-leave-their-pod", streamsLeaveTheirPod},
		{"two-models-swap-under-load", twoModelsSwapUnderLoad},
		{"three-sleep-on-one-device", threeSleepOnOneDevice},
		{"trace-of-a-cold-start-that-deletes-a-victim", traceOfAColdStartThatDeletesAVictim},
	}.run(t)
}

// TestActivators has those that delete one of the two activators, or want one to stay.
func TestActivators(t *testing.T) {
	parallel(t)
	lane{
		{"drained-under-load", anActivatorIsDrainedUnderLoad},
		{"streams-outlive-theirs", streamsOutliveTheirActivator},
		{"rights-of-the-autoscaler", rightsOfTheAutoscaler},
		{"front-door-of-other-clusters", aFrontDoorOfOtherClusters},
	}.run(t)
}

// TestFarFrontDoors has those that install the agent.
func TestFarFrontDoors(t *testing.T) {
	parallel(t)
	lane{
		{"the-cluster-serves-one", theClusterServesAFrontDoorElsewhere},
		{"one-has-a-function-created-here", aFrontDoorHasAFunctionCreatedHere},
		{"three-clusters-and-two-front-doors", threeClustersAndTwoFrontDoors},
	}.run(t)
}
