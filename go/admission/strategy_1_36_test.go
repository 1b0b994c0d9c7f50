//go:build !kubernetes_1_37

package admission

func (anyPod) AllowCreateOnUpdate() bool      { return false }
func (anyPod) AllowUnconditionalUpdate() bool { return true }
