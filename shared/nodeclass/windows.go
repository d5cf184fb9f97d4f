package nodeclass

import "strings"

// windowsData runs the class's own PowerShell first and then the script that the image carries (C-109).
func windowsData(b booting) string {
	var script strings.Builder
	script.WriteString("<powershell>\n")
	if own := strings.TrimSpace(b.custom); own != "" {
		own = strings.TrimSuffix(strings.TrimPrefix(own, "<powershell>"), "</powershell>")
		script.WriteString(strings.TrimSpace(own) + "\n")
	}
	script.WriteString("[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n")
	script.WriteString("& $EKSBootstrapScriptFile -EKSClusterName '" + b.facts.Cluster + "'" +
		" -APIServerEndpoint '" + b.facts.Endpoint + "'" +
		" -Base64ClusterCA '" + b.facts.CA + "'" +
		" -KubeletExtraArgs '" + strings.Join(b.kubeletFlags(), " ") + "'")
	if dns := b.kubelet.ClusterDNS; len(dns) > 0 {
		script.WriteString(" -DNSClusterIP '" + dns[0] + "'")
	}
	script.WriteString("\n</powershell>\n")
	return script.String()
}
