package knative

import "testing"

// lanes are tests that stand in one another's way: those of a lane run one after the other, beside
// the other lanes and beside all tests that run in parallel. Tests that are in everybody's way (they
// stop or replace a part of the system, or take the node's room) are in no lane: they run alone, before.
var lanes = map[string][]struct {
	name string
	run  func(*testing.T)
}{
	// They change the node's GPUs.
	"gpus": {
		{"two-models-share-one-device", twoModelsShareOneDevice},
		{"two-pods-of-a-function", twoPodsOfAFunction},
		{"dual-pods-swap", dualPodsSwap},
		{"pods-that-the-autoscaler-may-make", podsThatTheAutoscalerMayMake},
		{"a-function-that-lies-about-its-memory", aFunctionThatLiesAboutItsMemory},
		{"a-wake-that-hangs", aWakeThatHangs},
		{"a-device-is-lost", aDeviceIsLost},
		{"two-models-swap-under-load", twoModelsSwapUnderLoad},
		{"three-sleep-on-one-device", threeSleepOnOneDevice},
		{"outline-of-a-cold-start-that-deletes-a-victim", outlineOfAColdStartThatDeletesAVictim},
	},
	// They delete one of the two activators, or want one to stay.
	"activators": {
		{"drained-under-load", anActivatorIsDrainedUnderLoad},
		{"streams-outlive-theirs", streamsOutliveTheirActivator},
		{"rights-of-the-autoscaler", rightsOfTheAutoscaler},
	},
}

func TestLanes(t *testing.T) {
	t.Parallel()
	for name, tests := range lanes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, test := range tests {
				t.Run(test.name, test.run)
			}
		})
	}
}
