package stack

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/kubelet"
)

type sqsAttribute = sqstypes.QueueAttributeName

func tlsConfig(certificate tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
}

// startKubelets has every instance that runs start a kubelet, and every one that goes end it.
func (s *Stack) startKubelets(_, running context.Context) error {
	s.Kubelets = kubelet.New(kubelet.Options{
		Config:        s.Kubernetes.AdminConfig(),
		Cluster:       kubelet.Cluster{Name: s.Name},
		Lookup:        lookup,
		BootDelay:     func(kubelet.Machine) time.Duration { return s.options.BootDelay },
		ReadyDelay:    s.options.ReadyDelay,
		DeviceDelay:   s.options.DeviceDelay,
		PodStartDelay: s.options.PodStartDelay,
		Log:           s.options.Log,
	})
	s.waiting.Go(func() {
		if err := s.Kubelets.Run(running); err != nil && running.Err() == nil {
			s.options.Log.ErrorContext(running, "kubelets ended", "error", err)
		}
	})
	stop := s.EC2.Observe(func(c ec2.Change) {
		s.announce(c)
		switch c.Kind {
		case ec2.Running:
			s.Kubelets.Boot(machine(c.Instance))
		case ec2.ShuttingDown, ec2.Terminated:
			s.Kubelets.Halt(c.Instance.ID)
		}
	})
	s.cleanup = append(s.cleanup, func(context.Context) error { stop(); return nil })
	return nil
}

func machine(i ec2.Instance) kubelet.Machine {
	return kubelet.Machine{
		InstanceID: i.ID, Type: i.Type, Zone: i.Zone, ZoneID: i.ZoneID, Region: region, PrivateDNSName: i.PrivateDNSName, PrivateIP: i.PrivateIP,
		ImageID: i.ImageID, UserData: i.UserData, CapacityType: i.CapacityType,
		Fault: kubelet.Fault{NeverRegister: i.Boot.NeverRegisters, NotReady: i.Boot.NotReady, SlowBoot: i.Boot.Delay},
	}
}

// lookup describes the hardware of an instance type to a kubelet.
func lookup(name string) (kubelet.Type, bool) {
	t, ok := ec2.LookupType(name)
	if !ok {
		return kubelet.Type{}, false
	}
	out := kubelet.Type{
		VCPU: int64(t.VCPU), MemoryMiB: int64(t.MemoryMiB), Arch: t.Arch, ENIs: int64(t.ENIs), IPv4PerENI: int64(t.IPv4PerENI),
		NVMeGB: int64(t.NVMeGB), Devices: map[string]int64{}, VolumeSlots: 26,
	}
	if t.GPUs > 0 {
		maker, _, _ := strings.Cut(t.GPUName, "-")
		out.Devices[strings.ToLower(maker)+".com/gpu"] = int64(t.GPUs)
	}
	if t.Accelerators > 0 {
		out.Devices["aws.amazon.com/neuron"] = int64(t.Accelerators)
	}
	return out, true
}
