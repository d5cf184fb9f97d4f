package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/controller/volume/ephemeral"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
)

// Upstream's own defaults, which users of a hosted control plane cannot change either.
const (
	workers               = 5
	evictionQPS           = 0.1  // nodes a second whose pods are evicted in a zone that is mostly healthy
	secondaryEvictionQPS  = 0.01 // the same, in a zone that is mostly not
	largeCluster          = 50   // nodes from which on the secondary rate is used at all
	unhealthyZone         = 0.55 // share of nodes not ready that makes a zone unhealthy
	terminatedPodsKept    = 12500
	collectorWorkers      = 20
	collectorSync         = 30 * time.Second
	resync                = 12 * time.Hour
	volumeSync            = 15 * time.Second
	namespaceSync         = 5 * time.Minute
	namespaceClientFactor = 20 // deleting a namespace is hundreds of small calls
)

type controllersConfig struct {
	kubeconfig  string
	names       []string
	qps         float32
	burst       int
	nodeMonitor struct {
		period, grace, startupGrace time.Duration
	}
}

// newControllersCommand returns the controller manager. Its flags are the upstream ones of the same name.
func newControllersCommand() *cobra.Command {
	var c controllersConfig
	cmd := &cobra.Command{
		Use:  "kube-controller-manager",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signalled()
			defer stop()
			return runControllers(ctx, c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of a user that may impersonate the controllers' service accounts")
	f.StringSliceVar(&c.names, "controllers", []string{"*"}, "controllers to run: * for all, name, or -name to leave one out")
	f.Float32Var(&c.qps, "kube-api-qps", 20, "requests a second, for each controller")
	f.IntVar(&c.burst, "kube-api-burst", 30, "burst of requests, for each controller")
	f.DurationVar(&c.nodeMonitor.period, "node-monitor-period", 5*time.Second, "time between two looks at the nodes")
	f.DurationVar(&c.nodeMonitor.grace, "node-monitor-grace-period", 50*time.Second, "silence after which a node is unknown")
	f.DurationVar(&c.nodeMonitor.startupGrace, "node-startup-grace-period", time.Minute, "the same, for a node that has just registered")
	return cmd
}

// manager holds what the controllers share.
type manager struct {
	controllersConfig
	rest      *rest.Config
	informers informers.SharedInformerFactory
	metadata  informerfactory.InformerFactory // informers, and metadata-only ones for custom resources
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	started   chan struct{} // closed once the informers run
}

// controller starts one controller: it registers its informers and returns what to run once they are started.
type controller func(context.Context, *manager) (func(context.Context), error)

func controllers() map[string]controller {
	return map[string]controller{
		"clusterrole-aggregation-controller":          clusterRoles,
		"cronjob-controller":                          cronJobs,
		"daemonset-controller":                        daemonSets,
		"deployment-controller":                       deployments,
		"disruption-controller":                       disruptionBudgets,
		"ephemeral-volume-controller":                 ephemeralVolumes,
		"garbage-collector-controller":                garbage,
		"job-controller":                              jobs,
		"namespace-controller":                        namespaces,
		"node-lifecycle-controller":                   nodes,
		"persistentvolume-binder-controller":          volumes,
		"persistentvolume-protection-controller":      volumeProtection,
		"persistentvolumeclaim-protection-controller": claimProtection,
		"pod-garbage-collector-controller":            orphanedPods,
		"replicaset-controller":                       replicaSets,
		"serviceaccount-controller":                   serviceAccounts,
		"statefulset-controller":                      statefulSets,
		"taint-eviction-controller":                   taints,
		"ttl-after-finished-controller":               finishedJobs,
	}
}

// chosen returns the names that the --controllers list selects, sorted, or an error that names the unknown one.
func chosen(list []string, all map[string]controller) ([]string, error) {
	on := map[string]bool{}
	for _, entry := range list {
		name, off := strings.CutPrefix(entry, "-")
		switch {
		case entry == "*":
			for name := range all {
				if _, said := on[name]; !said {
					on[name] = true
				}
			}
		case all[name] == nil:
			return nil, fmt.Errorf("unknown controller %q, known are %v", name, slices.Sorted(maps.Keys(all)))
		default:
			on[name] = !off
		}
	}
	maps.DeleteFunc(on, func(_ string, on bool) bool { return !on })
	return slices.Sorted(maps.Keys(on)), nil
}

// runControllers runs the chosen controllers until ctx ends.
func runControllers(ctx context.Context, c controllersConfig) error {
	all := controllers()
	names, err := chosen(c.names, all)
	if err != nil {
		return err
	}
	m, err := newManager(c)
	if err != nil {
		return err
	}
	var runs []func(context.Context)
	for _, name := range names {
		run, err := all[name](klog.NewContext(ctx, klog.FromContext(ctx).WithName(name)), m)
		if err != nil {
			return fmt.Errorf("start controller %s: %w", name, err)
		}
		runs = append(runs, run)
	}
	m.informers.Start(ctx.Done())
	m.metadata.Start(ctx.Done())
	close(m.started)
	// The mapper must learn about custom resources that are installed while it runs.
	go wait.UntilWithContext(ctx, func(context.Context) { m.mapper.Reset() }, collectorSync)
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
	return nil
}

func newManager(c controllersConfig) (*manager, error) {
	base, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.kubeconfig, err)
	}
	base.QPS, base.Burst = c.qps, c.burst
	m := &manager{controllersConfig: c, rest: base, started: make(chan struct{})}

	shared := rest.AddUserAgent(rest.CopyConfig(base), "shared-informers")
	client, err := kubernetes.NewForConfig(protobuf(shared))
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(shared)
	if err != nil {
		return nil, err
	}
	m.informers = informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(dropManagedFields))
	m.metadata = informerfactory.NewInformerFactory(m.informers,
		metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, resync, metadatainformer.WithTransform(dropManagedFields)))
	m.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	return m, nil
}

// dropManagedFields halves what the informers keep; no controller here reads them.
func dropManagedFields(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// as returns the configuration of a controller's service account. RBAC then judges each controller by its own
// bootstrap role and the audit log names it, as when upstream hands out service account tokens.
func (m *manager) as(account string) *rest.Config {
	c := rest.AddUserAgent(rest.CopyConfig(m.rest), account)
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:kube-system:" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
	}
	return c
}

func (m *manager) client(account string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(protobuf(m.as(account)))
}

func protobuf(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = c.ContentType + ",application/json"
	return c
}

func deployments(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("deployment-controller")
	if err != nil {
		return nil, err
	}
	apps := m.informers.Apps().V1()
	c, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), m.informers.Core().V1().Pods(), client)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func replicaSets(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("replicaset-controller")
	if err != nil {
		return nil, err
	}
	c := replicaset.NewReplicaSetController(ctx, m.informers.Apps().V1().ReplicaSets(), m.informers.Core().V1().Pods(),
		client, replicaset.BurstReplicas)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func daemonSets(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("daemon-set-controller")
	if err != nil {
		return nil, err
	}
	apps, core := m.informers.Apps().V1(), m.informers.Core().V1()
	c, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(),
		client, flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func statefulSets(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("statefulset-controller")
	if err != nil {
		return nil, err
	}
	apps, core := m.informers.Apps().V1(), m.informers.Core().V1()
	c := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
		apps.ControllerRevisions(), client)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func jobs(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("job-controller")
	if err != nil {
		return nil, err
	}
	// Workloads and pod groups belong to a feature that is off by default.
	c, err := job.NewController(ctx, client, m.informers.Core().V1().Pods(), m.informers.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func cronJobs(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("cronjob-controller")
	if err != nil {
		return nil, err
	}
	batch := m.informers.Batch().V1()
	c, err := cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), client)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func finishedJobs(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("ttl-after-finished-controller")
	if err != nil {
		return nil, err
	}
	c := ttlafterfinished.New(ctx, m.informers.Batch().V1().Jobs(), client)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func disruptionBudgets(ctx context.Context, m *manager) (func(context.Context), error) {
	const account = "disruption-controller"
	client, err := m.client(account)
	if err != nil {
		return nil, err
	}
	scales, err := scale.NewForConfig(m.as(account), m.mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	apps, core := m.informers.Apps().V1(), m.informers.Core().V1()
	c := disruption.NewDisruptionController(ctx, core.Pods(), m.informers.Policy().V1().PodDisruptionBudgets(),
		core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(),
		client, m.mapper, scales, client.Discovery())
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func garbage(ctx context.Context, m *manager) (func(context.Context), error) {
	const account = "generic-garbage-collector"
	client, err := m.client(account)
	if err != nil {
		return nil, err
	}
	config := m.as(account)
	config.QPS *= 2 // one deletion is two calls
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c, err := garbagecollector.NewGarbageCollector(ctx, client, metadataClient, m.mapper,
		garbagecollector.DefaultIgnoredResources(), m.metadata, m.started)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		go c.Sync(ctx, client.Discovery(), collectorSync)
		c.Run(ctx, collectorWorkers, collectorSync)
	}, nil
}

func namespaces(ctx context.Context, m *manager) (func(context.Context), error) {
	config := m.as("namespace-controller")
	config.QPS *= namespaceClientFactor
	config.Burst *= namespaceClientFactor
	client, err := kubernetes.NewForConfig(protobuf(config))
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	var resources discovery.ServerResourcesInterface = client.Discovery()
	c := namespace.NewNamespaceController(ctx, client, metadataClient, resources.ServerPreferredNamespacedResources,
		m.informers.Core().V1().Namespaces(), namespaceSync, corev1.FinalizerKubernetes)
	return func(ctx context.Context) { c.Run(ctx, 2*workers) }, nil
}

func serviceAccounts(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("service-account-controller")
	if err != nil {
		return nil, err
	}
	core := m.informers.Core().V1()
	c, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, 1) }, nil
}

func clusterRoles(_ context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("clusterrole-aggregation-controller")
	if err != nil {
		return nil, err
	}
	c := clusterroleaggregation.NewClusterRoleAggregation(m.informers.Rbac().V1().ClusterRoles(), client.RbacV1())
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func nodes(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("node-controller")
	if err != nil {
		return nil, err
	}
	core := m.informers.Core().V1()
	c, err := nodelifecycle.NewNodeLifecycleController(ctx, m.informers.Coordination().V1().Leases(), core.Pods(), core.Nodes(),
		m.informers.Apps().V1().DaemonSets(), client,
		m.nodeMonitor.period, m.nodeMonitor.startupGrace, m.nodeMonitor.grace,
		evictionQPS, secondaryEvictionQPS, largeCluster, unhealthyZone)
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

func taints(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("node-controller")
	if err != nil {
		return nil, err
	}
	core := m.informers.Core().V1()
	c, err := tainteviction.New(ctx, client, core.Pods(), core.Nodes(), "taint-eviction-controller")
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

func orphanedPods(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("pod-garbage-collector")
	if err != nil {
		return nil, err
	}
	core := m.informers.Core().V1()
	c := podgc.NewPodGC(ctx, client, core.Pods(), core.Nodes(), terminatedPodsKept)
	return c.Run, nil
}

// volumes binds claims to volumes. It has no volume plugins: volumes are provisioned by a CSI driver, outside.
func volumes(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("persistent-volume-binder")
	if err != nil {
		return nil, err
	}
	core := m.informers.Core().V1()
	c, err := persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
		KubeClient:                client,
		SyncPeriod:                volumeSync,
		VolumeInformer:            core.PersistentVolumes(),
		ClaimInformer:             core.PersistentVolumeClaims(),
		ClassInformer:             m.informers.Storage().V1().StorageClasses(),
		PodInformer:               core.Pods(),
		NodeInformer:              core.Nodes(),
		EnableDynamicProvisioning: true,
	})
	if err != nil {
		return nil, err
	}
	return c.Run, nil
}

// claimProtection and volumeProtection take away the finalizers that admission sets: without them no claim, and no
// namespace that holds one, could ever be deleted.
func claimProtection(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("pvc-protection-controller")
	if err != nil {
		return nil, err
	}
	core := m.informers.Core().V1()
	c, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx), core.PersistentVolumeClaims(), core.Pods(), client)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, 1) }, nil
}

func volumeProtection(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("pv-protection-controller")
	if err != nil {
		return nil, err
	}
	c, err := pvprotection.NewPVProtectionController(klog.FromContext(ctx), m.informers.Core().V1().PersistentVolumes(), client)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, 1) }, nil
}

func ephemeralVolumes(ctx context.Context, m *manager) (func(context.Context), error) {
	client, err := m.client("ephemeral-volume-controller")
	if err != nil {
		return nil, err
	}
	core := m.informers.Core().V1()
	c, err := ephemeral.NewController(ctx, client, core.Pods(), core.PersistentVolumeClaims())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}
