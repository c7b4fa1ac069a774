import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/** Prints the settings of Kafka's clients: kind, name, type, default, one a line, tabs between. */
public class ClientConfigs {
    public static void main(String[] args) {
        print("producer", ProducerConfig.configDef());
        print("consumer", ConsumerConfig.configDef());
        print("admin", AdminClientConfig.configDef());
    }

    private static void print(String kind, ConfigDef configs) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(configs.configKeys()).values()) {
            if (key.internalConfig) {
                continue;
            }
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            System.out.println(kind + "\t" + key.name + "\t" + key.type + "\t" + value);
        }
    }
}
