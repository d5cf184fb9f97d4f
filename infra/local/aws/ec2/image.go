package ec2

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"treadle/infra/local/aws/fault"
	"treadle/infra/local/aws/wire"
)

// Image is a machine image to add. An empty ID is made up; an empty Owner is the account's own.
type Image struct {
	ID         string
	Name       string
	Arch       string // amd64 or arm64
	Windows    bool
	Owner      string // 12 digits
	Alias      string // such as amazon
	Created    time.Time
	Deprecated time.Time // zero: never
	Device     string    // root device; empty is /dev/xvda
	Tags       map[string]string
}

type image struct {
	Image
	tags map[string]string
}

func (m *image) key() string { return m.ID }

// AddImage adds an image, or replaces the one with the same id, and returns its id.
func (s *Service) AddImage(v Image) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addImage(v)
}

func (s *Service) addImage(v Image) string {
	if v.ID == "" {
		v.ID = s.mint("ami-")
	}
	if v.Owner == "" {
		v.Owner = s.cfg.Account
	}
	if v.Device == "" {
		v.Device = "/dev/xvda"
	}
	s.images.add(&image{v, cloneTags(v.Tags)})
	return v.ID
}

// RemoveImage deregisters an image and says whether there was one.
func (s *Service) RemoveImage(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.images.byID[id]
	s.images.remove(id)
	return ok
}

// SSMParameters returns the public parameters that name images: paths as EKS, Bottlerocket and Windows publish them for
// Kubernetes 1.36 and 1.37, values are image ids. The map is the caller's own; rolled images change what a later call returns.
func (s *Service) SSMParameters() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ssm)
}

// family is one line of images that EKS nodes boot from. Its texts have placeholders: {k8s} for the Kubernetes minor, {date},
// {bottlerocket} and {commit} for the release.
type family struct {
	name    string
	arch    string
	owner   string
	device  string
	windows bool
	pinned  string // path of the parameter that names the image of one release; empty: there is none
	latest  string // path of the parameter that names the newest image
}

type release struct {
	at           time.Time
	bottlerocket string
	deprecated   time.Time // zero: two years later
}

// releases are those that exist from the start, oldest first.
//
//nolint:gochecknoglobals // a table
var releases = []release{
	{time.Date(2026, 9, 7, 18, 4, 11, 0, time.UTC), "1.60.0", time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)},
	{time.Date(2026, 10, 12, 18, 4, 11, 0, time.UTC), "1.61.0", time.Time{}},
	{time.Date(2026, 11, 16, 18, 4, 11, 0, time.UTC), "1.62.0", time.Time{}},
}

// kubernetesMinors are the versions that images are published for.
//
//nolint:gochecknoglobals // a table
var kubernetesMinors = []string{"1.36", "1.37"}

func families() []family {
	var all []family
	for _, v := range []struct{ arch, path, variant string }{
		{"amd64", "x86_64", "standard"}, {"amd64", "x86_64", "nvidia"}, {"amd64", "x86_64", "neuron"},
		{"arm64", "arm64", "standard"}, {"arm64", "arm64", "nvidia"},
	} {
		name := "amazon-eks-node-al2023-" + v.path + "-" + v.variant + "-{k8s}-v{date}"
		path := "/aws/service/eks/optimized-ami/{k8s}/amazon-linux-2023/" + v.path + "/" + v.variant
		all = append(all, family{
			name: name, arch: v.arch, owner: "602401143452", pinned: path + "/" + name + "/image_id", latest: path + "/recommended/image_id",
		})
	}
	for _, v := range []struct{ arch, path, inName string }{{"amd64", "x86_64", "x86_64"}, {"arm64", "arm64", "aarch64"}} {
		for _, variant := range []string{"", "-nvidia"} {
			path := "/aws/service/bottlerocket/aws-k8s-{k8s}" + variant + "/" + v.path
			all = append(all, family{
				name: "bottlerocket-aws-k8s-{k8s}" + variant + "-" + v.inName + "-v{bottlerocket}-{commit}", arch: v.arch,
				owner: "092701018921", pinned: path + "/{bottlerocket}/image_id", latest: path + "/latest/image_id",
			})
		}
	}
	for _, year := range []string{"2019", "2022", "2025"} {
		name := "Windows_Server-" + year + "-English-Core-EKS_Optimized-{k8s}"
		all = append(all, family{
			name: name + "-{date}", arch: "amd64", owner: "801119661308", device: "/dev/sda1", windows: true,
			latest: "/aws/service/ami-windows-latest/" + name + "/image_id",
		})
	}
	return all
}

func (s *Service) addImages() {
	for _, r := range releases {
		s.publish(r)
	}
}

// publish adds each family's image of one release and points the parameters to it.
func (s *Service) publish(r release) {
	if r.deprecated.IsZero() {
		r.deprecated = r.at.AddDate(2, 0, 0)
	}
	for _, minor := range kubernetesMinors {
		fill := strings.NewReplacer("{k8s}", minor, "{date}", r.at.Format("20060102"), "{bottlerocket}", r.bottlerocket,
			"{commit}", hexOf(8, r.bottlerocket)).Replace
		for _, f := range families() {
			name := fill(f.name)
			id := s.addImage(Image{
				ID: "ami-" + hexOf(17, name), Name: name, Arch: f.arch, Windows: f.windows, Owner: f.owner, Alias: "amazon",
				Created: r.at, Deprecated: r.deprecated, Device: f.device,
			})
			s.ssm[fill(f.latest)] = id
			if f.pinned != "" {
				s.ssm[fill(f.pinned)] = id
			}
		}
	}
}

// RollImages publishes a newer image of each family and points the parameters that name the newest to it.
func (s *Service) RollImages() {
	s.mu.Lock()
	s.rolled++
	last := releases[len(releases)-1]
	s.publish(release{at: last.at.AddDate(0, 0, s.rolled), bottlerocket: fmt.Sprintf("1.62.%d", s.rolled)})
	s.mu.Unlock()
	if s.cfg.ImagesRolled != nil {
		s.cfg.ImagesRolled(s.SSMParameters())
	}
}

func imageNotFound(id string) *wire.Error {
	return wire.Errorf("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
}

func (s *Service) describeImages(_ *fault.Call, in *sdk.DescribeImagesInput) (*sdk.DescribeImagesOutput, error) {
	pass, err := imageFilters.compile(in.Filters, func(m *image) map[string]string { return m.tags })
	if err != nil {
		return nil, err
	}
	all, err := s.images.pick(in.ImageIds, func(id string) error { return imageNotFound(id) })
	if err != nil {
		return nil, err
	}
	now := time.Now()
	all = keep(all, func(m *image) bool {
		owned := len(in.Owners) == 0 || slices.ContainsFunc(in.Owners, func(o string) bool {
			return o == m.Owner || o == m.Alias && o != "" || o == "self" && m.Owner == s.cfg.Account
		})
		gone := !m.Deprecated.IsZero() && now.After(m.Deprecated)
		shown := !gone || deref(in.IncludeDeprecated) || m.Owner == s.cfg.Account || len(in.ImageIds) > 0
		return owned && shown && pass(m)
	})
	all, next, err := page(all, in.MaxResults, in.NextToken, limits{1, 1000, 1000})
	if err != nil {
		return nil, err
	}
	out := &sdk.DescribeImagesOutput{NextToken: next, Images: []types.Image{}}
	for _, m := range all {
		out.Images = append(out.Images, m.show())
	}
	return out, nil
}

const stampLayout = "2006-01-02T15:04:05.000Z"

func (m *image) show() types.Image {
	v := types.Image{
		ImageId: new(m.ID), Name: new(m.Name), Architecture: architecture(m.Arch), OwnerId: new(m.Owner),
		ImageLocation: new(m.Owner + "/" + m.Name), CreationDate: new(m.Created.Format(stampLayout)), State: types.ImageStateAvailable,
		Public: new(m.Alias != ""), ImageType: types.ImageTypeValuesMachine, EnaSupport: new(true), Hypervisor: types.HypervisorTypeXen,
		RootDeviceName: new(m.Device), RootDeviceType: types.DeviceTypeEbs, VirtualizationType: types.VirtualizationTypeHvm,
		PlatformDetails: new("Linux/UNIX"), UsageOperation: new("RunInstances"), Tags: tagList(m.tags),
		BlockDeviceMappings: []types.BlockDeviceMapping{{
			DeviceName: new(m.Device),
			Ebs: &types.EbsBlockDevice{
				SnapshotId: new("snap-" + hexOf(17, m.ID)), VolumeSize: new(int32(20)), VolumeType: types.VolumeTypeGp3,
				DeleteOnTermination: new(true), Encrypted: new(false),
			},
		}},
	}
	if m.Alias != "" {
		v.ImageOwnerAlias = new(m.Alias)
	}
	if !m.Deprecated.IsZero() {
		v.DeprecationTime = new(m.Deprecated.Format(stampLayout))
	}
	if m.Windows {
		v.Platform, v.PlatformDetails, v.UsageOperation = types.PlatformValuesWindows, new("Windows"), new("RunInstances:0002")
	}
	return v
}

func architecture(arch string) types.ArchitectureValues {
	if arch == "arm64" {
		return types.ArchitectureValuesArm64
	}
	return types.ArchitectureValuesX8664
}

//nolint:gochecknoglobals // a table
var imageFilters = filters[*image]{
	"image-id":            func(m *image) []string { return one(m.ID) },
	"name":                func(m *image) []string { return one(m.Name) },
	"architecture":        func(m *image) []string { return one(string(architecture(m.Arch))) },
	"owner-id":            func(m *image) []string { return one(m.Owner) },
	"owner-alias":         func(m *image) []string { return one(m.Alias) },
	"state":               func(*image) []string { return one("available") },
	"image-type":          func(*image) []string { return one("machine") },
	"root-device-type":    func(*image) []string { return one("ebs") },
	"virtualization-type": func(*image) []string { return one("hvm") },
	"creation-date":       func(m *image) []string { return one(m.Created.Format(stampLayout)) },
	"platform": func(m *image) []string {
		if m.Windows {
			return one("windows")
		}
		return nil
	},
}
