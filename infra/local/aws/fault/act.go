package fault

import (
	"context"
	"errors"
	"fmt"
)

// The acts.
const (
	// ActInterrupt warns a Spot instance and takes it Notice later; below zero: takes it at once, without a warning.
	ActInterrupt = "interrupt"
	// ActRebalance sends a rebalance recommendation for a Spot instance.
	ActRebalance = "rebalance"
	// ActTerminate ends an instance at once, with Code and Message as its state reason.
	ActTerminate = "terminate"
	// ActImpair fails an instance's status check named by Check (instance, system or ebs); Healthy mends it.
	ActImpair = "impair"
	// ActScheduleEvent plans maintenance named by Code (such as instance-retirement) for an instance, Notice from now.
	ActScheduleEvent = "schedule-event"
	// ActRollImages publishes a newer image for each image family and points the recommended parameters to it.
	ActRollImages = "roll-images"
)

// Act is something that happens to the world once.
type Act struct {
	Act      string   `json:"act"`
	Instance string   `json:"instance,omitempty"`
	Notice   Duration `json:"notice,omitempty"` // 0 is EC2's two minutes
	Copies   int      `json:"copies,omitempty"` // how often the notice is sent; 0 is once
	Code     string   `json:"code,omitempty"`
	Message  string   `json:"message,omitempty"`
	Check    string   `json:"check,omitempty"`
	Healthy  bool     `json:"healthy,omitempty"`
}

// World carries acts out. Repeating an act repeats its effect. An error names what the world does not have.
type World interface {
	Do(ctx context.Context, act Act) error
}

func (a Act) check() error {
	switch a.Act {
	case ActRollImages:
		return nil
	case ActInterrupt, ActRebalance, ActTerminate:
	case ActScheduleEvent:
		if a.Code == "" {
			return errors.New("schedule-event needs a code")
		}
	case ActImpair:
		if a.Check != "instance" && a.Check != "system" && a.Check != "ebs" {
			return fmt.Errorf("impair knows no check %q", a.Check)
		}
	default:
		return fmt.Errorf("unknown act %q", a.Act)
	}
	if a.Instance == "" {
		return fmt.Errorf("%s needs an instance", a.Act)
	}
	return nil
}
