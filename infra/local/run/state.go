package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	sdkec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"

	"treadle/infra/local/aws/ec2"
	"treadle/infra/local/stack"
)

// state is what the cluster looks like at one instant.
type state struct {
	pods, pending, running, done, failed int
	claims, nodes, ready                 int
	usdPerHour                           float64
	used, room                           amounts // of ready nodes
	rows                                 []row
}

// amounts is CPU in millicores, memory in bytes, and whole GPUs.
type amounts struct{ milliCPU, memory, gpus int64 }

func (a *amounts) add(list corev1.ResourceList) {
	a.milliCPU += list.Cpu().MilliValue()
	a.memory += list.Memory().Value()
	gpus := list[gpuResource]
	a.gpus += gpus.Value()
}

// row is one instance.
type row struct {
	id, node, kind, zone, capacity, state string
	usdPerHour                            float64
	pods                                  int
	used, room                            amounts
	launched                              time.Time
}

// viewer reads the state of a stack.
type viewer struct {
	stack *stack.Stack
	kube  *clientset.Clientset
	any   dynamic.Interface
	spot  map[[2]string]float64 // by type and zone
}

func newViewer(s *stack.Stack) (*viewer, error) {
	config := s.Kubernetes.AdminConfig()
	kube, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &viewer{stack: s, kube: kube, any: dyn, spot: map[[2]string]float64{}}, nil
}

func nodeClaims() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}
}

// look reads the whole state. Pods of kube-system do not count: they are not the workload's.
func (v *viewer) look(ctx context.Context) (state, error) {
	pods, err := v.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return state{}, err
	}
	nodes, err := v.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return state{}, err
	}
	claims, err := v.any.Resource(nodeClaims()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return state{}, err
	}
	out := state{claims: len(claims.Items), nodes: len(nodes.Items)}
	byNode := map[string]*row{}
	for _, i := range v.stack.EC2.Instances() {
		if i.State == "terminated" {
			continue
		}
		price, err := v.price(ctx, i)
		if err != nil {
			return state{}, err
		}
		out.usdPerHour += price
		out.rows = append(out.rows, row{
			id: i.ID, node: i.PrivateDNSName, kind: i.Type, zone: i.Zone, capacity: i.CapacityType, state: i.State, usdPerHour: price, launched: i.LaunchTime,
		})
	}
	slices.SortFunc(out.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.usdPerHour, a.usdPerHour), cmp.Compare(a.node, b.node))
	})
	for i := range out.rows {
		byNode[out.rows[i].node] = &out.rows[i]
	}
	for i := range nodes.Items {
		out.addNode(&nodes.Items[i], byNode[nodes.Items[i].Name])
	}
	for i := range pods.Items {
		if pods.Items[i].Namespace != "kube-system" {
			out.addPod(&pods.Items[i], byNode[pods.Items[i].Spec.NodeName])
		}
	}
	return out, nil
}

func (s *state) addNode(n *corev1.Node, r *row) {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	status := "joining"
	if ready {
		s.ready++
		s.room.add(n.Status.Allocatable)
		status = "ready"
	}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "karpenter.sh/disrupted" }) {
		status = "leaving"
	}
	if r != nil {
		r.state = status
		r.room.add(n.Status.Allocatable)
	}
}

func (s *state) addPod(p *corev1.Pod, r *row) {
	s.pods++
	switch p.Status.Phase {
	case corev1.PodRunning:
		s.running++
	case corev1.PodSucceeded:
		s.done++
		return
	case corev1.PodFailed:
		s.failed++
		return
	default:
		s.pending++
	}
	if p.Spec.NodeName == "" {
		return
	}
	var asks amounts
	for _, c := range p.Spec.Containers {
		asks.add(c.Resources.Requests)
	}
	s.used.milliCPU += asks.milliCPU
	s.used.memory += asks.memory
	s.used.gpus += asks.gpus
	if r != nil {
		r.pods++
		r.used.milliCPU += asks.milliCPU
		r.used.memory += asks.memory
		r.used.gpus += asks.gpus
	}
}

// price is what an instance costs in an hour: the list price, or the Spot price of its type and zone.
func (v *viewer) price(ctx context.Context, i ec2.Instance) (float64, error) {
	if i.CapacityType != "spot" {
		t, _ := ec2.LookupType(i.Type)
		if t == nil {
			return 0, nil
		}
		return t.OnDemandUSD, nil
	}
	key := [2]string{i.Type, i.Zone}
	if price, known := v.spot[key]; known {
		return price, nil
	}
	out, err := v.stack.EC2.DescribeSpotPriceHistory(ctx, &sdkec2.DescribeSpotPriceHistoryInput{
		InstanceTypes: []ec2types.InstanceType{ec2types.InstanceType(i.Type)}, AvailabilityZone: sdkaws.String(i.Zone),
		ProductDescriptions: []string{"Linux/UNIX"},
	})
	if err != nil {
		return 0, err
	}
	for _, one := range out.SpotPriceHistory {
		v.spot[key] = parse(sdkaws.ToString(one.SpotPrice))
		break
	}
	return v.spot[key], nil
}

// events returns the notes of the latest Events that warn of something Treadle said, newest first.
func (v *viewer) warnings(ctx context.Context, most int) ([]string, error) {
	list, err := v.any.Resource(schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time)
	})
	var out []string
	for _, e := range list.Items {
		reporter, _, _ := unstructured.NestedString(e.Object, "reportingController")
		kind, _, _ := unstructured.NestedString(e.Object, "type")
		note, _, _ := unstructured.NestedString(e.Object, "note")
		if reporter == "treadle" && kind == "Warning" && !slices.Contains(out, note) && len(out) < most {
			out = append(out, note)
		}
	}
	return out, nil
}
