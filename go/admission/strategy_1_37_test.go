//go:build kubernetes_1_37

package admission

import "context"

func (anyPod) AllowCreateOnUpdate(context.Context) bool      { return false }
func (anyPod) AllowUnconditionalUpdate(context.Context) bool { return true }
