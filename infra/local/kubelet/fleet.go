package kubelet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Workers of each kind. Together they stay below the streams that an API server allows on one
// connection.
const (
	nodeWorkers  = 16
	leaseWorkers = 40
	podWorkers   = 40
)

// Options configure a Fleet. The zero value of each delay means none.
type Options struct {
	// Config reaches the API server with an identity that may impersonate and read all pods.
	Config *rest.Config
	// Cluster is what user data must name. Empty fields are taken from Config; an empty Name
	// accepts any.
	Cluster Cluster
	// Lookup describes an instance type.
	Lookup func(instanceType string) (Type, bool)

	BootDelay     func(Machine) time.Duration // from Boot to registration; nil means none
	ReadyDelay    time.Duration               // from registration to Ready
	DeviceDelay   time.Duration               // from Ready to the device plugins' resources
	PodStartDelay time.Duration               // from binding to Running

	LeaseEvery  time.Duration // 0 means 10 s; above 3,000 nodes it grows with the fleet, to 25 s
	ReportEvery time.Duration // between status reports without news; 0 means 5 min

	Log *slog.Logger // nil means slog.Default()
}

// Cluster is the cluster that nodes may join.
type Cluster struct {
	Name     string
	Endpoint string // URL of the API server
	CA       []byte // PEM
}

// accepts says why a node with b could not join: its token, its address or its trust would be wrong.
func (c Cluster) accepts(b bootstrap) error {
	if c.Name != "" && b.cluster != c.Name {
		return fmt.Errorf("join cluster %q: unauthorized, the cluster is %q", b.cluster, c.Name)
	}
	if !sameEndpoint(b.endpoint, c.Endpoint) {
		return fmt.Errorf("join cluster %q: no API server at %q", b.cluster, b.endpoint)
	}
	if len(c.CA) > 0 && !bytes.Equal(bytes.TrimSpace(b.ca), bytes.TrimSpace(c.CA)) {
		return fmt.Errorf("join cluster %q: certificate signed by unknown authority", b.cluster)
	}
	return nil
}

func sameEndpoint(a, b string) bool {
	u, errA := url.Parse(a)
	v, errB := url.Parse(b)
	if errA != nil || errB != nil {
		return false
	}
	port := func(u *url.URL) string { return cmp.Or(u.Port(), "443") }
	return u.Scheme == v.Scheme && u.Hostname() == v.Hostname() && port(u) == port(v)
}

// Fleet is the kubelets of a cluster. Its methods are safe for concurrent use.
type Fleet struct {
	opts Options
	log  *slog.Logger
	api  *client // set by Run

	nodeWork  *agenda[string] // by instance id
	leaseWork *agenda[string] // by instance id
	podWork   *agenda[types.UID]

	mu     sync.Mutex
	nodes  map[string]*node // by instance id
	byName map[string]*node // registered, by name of the Node
	pods   map[types.UID]*pod
	podsOn map[string]map[types.UID]*pod // by name of the Node, which need not be ours
	lastIP netip.Addr
}

// New builds a Fleet without nodes. It dials nothing.
func New(o Options) *Fleet {
	o.LeaseEvery = cmp.Or(o.LeaseEvery, 10*time.Second)
	o.ReportEvery = cmp.Or(o.ReportEvery, 5*time.Minute)
	if o.BootDelay == nil {
		o.BootDelay = func(Machine) time.Duration { return 0 }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Cluster.Endpoint = cmp.Or(o.Cluster.Endpoint, o.Config.Host)
	if len(o.Cluster.CA) == 0 {
		o.Cluster.CA = o.Config.CAData
	}
	return &Fleet{
		opts:      o,
		log:       o.Log,
		nodeWork:  newAgenda[string](),
		leaseWork: newAgenda[string](),
		podWork:   newAgenda[types.UID](),
		nodes:     map[string]*node{},
		byName:    map[string]*node{},
		pods:      map[types.UID]*pod{},
		podsOn:    map[string]map[types.UID]*pod{},
		lastIP:    netip.MustParseAddr("100.64.0.0"),
	}
}

// Run drives the fleet until ctx ends. Call it once.
func (f *Fleet) Run(ctx context.Context) error {
	api, err := newClient(f.opts.Config)
	if err != nil {
		return err
	}
	f.api = api
	logger := logr.FromSlogHandler(f.log.Handler())
	reflector := cache.NewReflectorWithOptions(api.boundPods(), &corev1.Pod{}, podStore{ctx, f},
		cache.ReflectorOptions{Name: "pods", Logger: &logger})

	var wg sync.WaitGroup
	wg.Go(func() { reflector.RunWithContext(ctx) })
	wg.Go(func() { f.nodeWork.run(ctx, nodeWorkers, f.stepNode) })
	wg.Go(func() { f.leaseWork.run(ctx, leaseWorkers, f.stepLease) })
	wg.Go(func() { f.podWork.run(ctx, podWorkers, f.stepPod) })
	wg.Wait()
	return nil
}

// Boot starts the kubelet of an instance that has begun to run. Repeating it changes nothing.
func (f *Fleet) Boot(m Machine) {
	m.UserData = slices.Clone(m.UserData)
	delay := f.opts.BootDelay(m) + m.Fault.SlowBoot
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.nodes[m.InstanceID]; ok {
		return
	}
	n := &node{Machine: m, name: m.PrivateDNSName, state: Booting, bootAt: time.Now().Add(delay), used: amounts{}}
	f.nodes[m.InstanceID] = n
	f.nodeWork.at(m.InstanceID, n.bootAt)
}

// Halt stops the kubelet of an instance at once, as when EC2 begins to shut it down. The Node and
// its pods stay as they are, for others to find out. An unknown instance changes nothing.
func (f *Fleet) Halt(instanceID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[instanceID]
	if !ok {
		return
	}
	delete(f.nodes, instanceID)
	if f.byName[n.name] == n {
		delete(f.byName, n.name)
	}
	for _, p := range f.podsOn[n.name] {
		p.counted = false
	}
}

// SetFault replaces the fault of a machine and says whether the machine is known. What only
// matters at boot (NeverRegister, SlowBoot, MissingMemory) has no effect later.
func (f *Fleet) SetFault(instanceID string, fault Fault) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[instanceID]
	if !ok {
		return false
	}
	n.Fault = fault
	if n.registered() {
		n.reportAt = time.Time{}
		f.nodeWork.at(instanceID, time.Now())
		f.leaseWork.at(instanceID, time.Now())
		f.wakePods(n)
	}
	return true
}

// Nodes lists all machines that were booted and not halted, by instance id.
func (f *Fleet) Nodes() []Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]Status, 0, len(f.nodes))
	for _, n := range f.nodes {
		all = append(all, n.status())
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.InstanceID, b.InstanceID) })
	return all
}

// wakePods has every pod of n looked at again. The caller holds the mutex.
func (f *Fleet) wakePods(n *node) {
	now := time.Now()
	for uid := range f.podsOn[n.name] {
		f.podWork.at(uid, now)
	}
}

// nextIP hands out pod addresses in turn, of a range so wide that none is in use twice.
func (f *Fleet) nextIP() string {
	f.lastIP = f.lastIP.Next()
	if !netip.MustParsePrefix("100.64.0.0/10").Contains(f.lastIP) {
		f.lastIP = netip.MustParseAddr("100.64.0.1")
	}
	return f.lastIP.String()
}

var (
	errUnknownType    = errors.New("instance type is not known")
	errNeverRegisters = errors.New("told never to register")
	errLeaseMoved     = errors.New("lease was changed by another")
)
