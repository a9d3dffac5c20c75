package api

// Words of [InstanceStatus].Stage of an instance whose pod has no node yet. Message then says what stands in the way.
const (
	// StageUnschedulable: no node takes the pod as things are.
	StageUnschedulable = "unschedulable"
	// StageProvisioning: a node is being provisioned for it, or made free.
	StageProvisioning = "provisioning-node"
)

// OnItsWay says whether s is of an instance whose node is being provisioned or whose model is being fetched. The clocks
// of its start and of the requests that wait for it stand still meanwhile: whoever provisions or fetches has limits for
// what comes no further.
func (s InstanceStatus) OnItsWay() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StepFetching)
}

// Unplaced says whether s is of an instance that no node has taken yet, and Message says why.
func (s InstanceStatus) Unplaced() bool {
	return s.State == Starting && (s.Stage == StageProvisioning || s.Stage == StageUnschedulable)
}
